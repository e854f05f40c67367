"use strict";
(() => {
  const data = JSON.parse(document.getElementById("report-data").textContent);

  // Every text from the records goes in as text, never as markup.
  function make(parent, name, attributes = {}, text = null) {
    const element = document.createElement(name);
    return finish(parent, element, attributes, text);
  }
  function draw(parent, name, attributes = {}, text = null) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    return finish(parent, element, attributes, text);
  }
  function finish(parent, element, attributes, text) {
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== null) element.textContent = text;
    if (parent) parent.append(element);
    return element;
  }
  const role = (root, name) => root.querySelector(`[data-role="${name}"]`);
  function fill(select, names) {
    select.replaceChildren();
    names.forEach((name, place) => make(select, "option", { value: place }, name));
  }
  const unique = (values) => [...new Set(values)];
  const raised = (power) => power.replace(/[-+0-9]/g, (sign) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(sign)] ?? "");
  function short(value) {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    if (size === 0 || (size >= 1e-3 && size < 1e5)) return String(Number(value.toPrecision(3)));
    const [factor, power] = value.toExponential(1).split("e");
    return `${Number(factor) === 1 ? "" : `${Number(factor)}·`}10${raised(power)}`;
  }

  // --- tables

  function sortTable(table, place, header) {
    const direction = header.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    for (const other of header.parentElement.children) other.setAttribute("aria-sort", "none");
    header.setAttribute("aria-sort", direction);
    const sign = direction === "ascending" ? 1 : -1;
    const body = table.tBodies[0];
    const key = (row) => row.cells[place].dataset.sort;
    const rows = [...body.rows].sort((a, b) => {
      const [left, right] = [key(a), key(b)];
      if (left === "" || right === "") return (left === "") - (right === ""); // what is not there comes last
      const difference = Number(left) - Number(right);
      return sign * (Number.isNaN(difference) ? left.localeCompare(right) : difference);
    });
    body.append(...rows);
  }
  for (const table of document.querySelectorAll("table[data-sortable]")) {
    [...table.tHead.rows[0].cells].forEach((header, place) => {
      header.querySelector("button").addEventListener("click", () => sortTable(table, place, header));
    });
  }
  // A long table shows one data set at a time; without a script, and on paper, it is whole.
  for (const block of document.querySelectorAll(".table-block")) {
    const rows = [...block.querySelectorAll("tbody tr[data-group]")];
    const names = unique(rows.map((row) => row.dataset.group));
    if (names.length < 2 || rows.length <= 15) continue;
    const label = make(null, "label", {}, "Data set ");
    const select = make(label, "select", { "data-role": "rows" });
    fill(select, [...names, "all"]);
    const show = () => { for (const row of rows) row.hidden = select.value < names.length && row.dataset.group !== names[select.value]; };
    select.addEventListener("change", show);
    block.querySelector(".table-tools").prepend(label);
    show();
  }

  // --- curves

  const DASHES = { literal: "2 3", matched: "", annealfit: "", "": "7 4" };
    const colour = (series) => `var(--bits-${series.method === "optimum" || !data.bits.includes(series.bits) ? "other" : series.bits})`;

  function ticks(low, high, log, room) {
    if (!log) {
      const rough = (high - low) / Math.max(room, 1);
      const power = 10 ** Math.floor(Math.log10(rough));
      const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
      const found = [];
      for (let n = Math.ceil(low / step); n * step <= high + step * 1e-9; n++) found.push(n * step);
      return found.map((value) => [value, value]);
    }
    const decades = high - low;
    const parts = decades > room ? [1] : decades > room / 3 ? [1, 3] : [1, 2, 5];
    const skip = Math.max(1, Math.ceil(decades / room));
    const found = [];
    for (let power = Math.floor(low); power <= Math.ceil(high); power++) {
      if (power % skip) continue;
      for (const part of parts) {
        const place = power + Math.log10(part);
        if (place >= low - 1e-9 && place <= high + 1e-9) found.push([place, part * 10 ** power]);
      }
    }
    if (found.length < 2) return ticks(10 ** low, 10 ** high, false, room).filter(([v]) => v > 0).map(([v]) => [Math.log10(v), v]);
    return found;
  }

  function CurveChart(root, number) {
    const plot = root.querySelector(".plot");
    const legend = root.querySelector(".legend");
    const chooseDataset = role(root, "dataset");
    const chooseQuantity = role(root, "quantity");
    const chooseAcross = role(root, "across");
    const axes = Object.keys(data.across);
    const quantities = root.dataset.quantities.split(" ");
    const shown = data.curves.filter((set) => set.series.some((series) => quantities.some((q) => series.quantities[q])));
    if (!shown.length) { root.replaceChildren(make(null, "p", {}, "No run recorded this.")); return; }
    fill(chooseDataset, shown.map((set) => set.dataset));
    fill(chooseQuantity, quantities.map((name) => data.quantities[name].title));
    fill(chooseAcross, axes.map((name) => data.across[name]));
    if (quantities.length < 2) role(root, "quantity-label").hidden = true;
    const hasMatched = data.curves.some((set) => set.series.some((series) => series.preset === "matched"));
    // A first view that can be read: literal's noise and the lesser bits of annealfit are one click away.
    const hidden = new Set();
    for (const set of data.curves) for (const series of set.series) {
      const lesser = series.preset === "annealfit" && series.bits < 3;
      if (hasMatched && (lesser || (series.preset === "literal" && series.bits !== 20))) hidden.add(series.name);
    }
    let view = null; // of the axes' own units, which are logarithms on a logarithmic axis
    let cursor = null; // a place on the axis across: an iteration, a number of solves, seconds
    let geometry = null;
    let values = [];

    const quantity = () => quantities[Number(chooseQuantity.value)];
    const set = () => shown[Number(chooseDataset.value)];
    const isLog = () => data.quantities[quantity()].log;
    const toAxis = (value) => (isLog() ? (value > 0 ? Math.log10(value) : null) : value);
    const across = () => axes[Number(chooseAcross.value)];
    const isCounted = () => across() !== "seconds";
    // Of the shown curves' points across; a logarithmic axis has no zero.
    function ends() {
      const all = set().series.flatMap((series) => series.across[across()] ?? []).filter((value) => value > 0);
      return all.length ? [Math.min(...all), Math.max(...all, Math.min(...all) * 2)] : [1, 2];
    }
    const longest = () => ends()[1];
    const lines = () => set().series.filter((series) => series.quantities[quantity()]).map((series) => {
      const [mean, low, high] = series.quantities[quantity()];
      const x = series.across[across()] ?? [];
      if (x.length) return { series, x, mean, low, high };
      const twice = (list) => [list.at(-1), list.at(-1)]; // a level: the same from one end to the other
      return { series, x: ends(), mean: twice(mean), low: twice(low), high: twice(high) };
    });

    function fullView() {
      const visible = lines().filter((line) => !hidden.has(line.series.name));
      const all = (visible.length ? visible : lines()).flatMap((line) => [...line.low, ...line.high]).map((v) => (v === null ? null : toAxis(v))).filter((v) => v !== null);
      let [low, high] = all.length ? [Math.min(...all), Math.max(...all)] : [0, 1];
      const margin = (high - low || 1) * 0.04;
      const [first, last] = ends();
      return { x0: Math.log10(first), x1: Math.log10(last), y0: low - margin, y1: high + margin };
    }

    function render() {
      const width = Math.max(280, plot.clientWidth || 640);
      const height = width < 500 ? 300 : 400;
      const edge = { left: 52, right: 20, top: 10, bottom: 40 };
      const box = view ?? fullView();
      const x = (value) => edge.left + ((value - box.x0) / (box.x1 - box.x0)) * (width - edge.left - edge.right);
      const y = (value) => height - edge.bottom - ((value - box.y0) / (box.y1 - box.y0)) * (height - edge.top - edge.bottom);
      geometry = { width, height, edge, box, x };
      plot.replaceChildren();
      const svg = draw(plot, "svg", { viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true" });
      const clip = `clip-${number}`;
      draw(draw(draw(svg, "defs"), "clipPath", { id: clip }), "rect", { x: edge.left, y: edge.top, width: width - edge.left - edge.right, height: height - edge.top - edge.bottom });
      for (const [place, value] of ticks(box.x0, box.x1, true, width / 90)) {
        draw(svg, "line", { class: "grid", x1: x(place), x2: x(place), y1: edge.top, y2: height - edge.bottom });
        draw(svg, "text", { x: x(place), y: height - edge.bottom + 16, "text-anchor": "middle" }, short(value));
      }
      for (const [place, value] of ticks(box.y0, box.y1, isLog(), 6)) {
        draw(svg, "line", { class: "grid", x1: edge.left, x2: width - edge.right, y1: y(place), y2: y(place) });
        draw(svg, "text", { x: edge.left - 6, y: y(place) + 4, "text-anchor": "end" }, short(value));
      }
      draw(svg, "text", { x: (edge.left + width - edge.right) / 2, y: height - 6, "text-anchor": "middle" }, data.across[across()]);
      const inside = draw(svg, "g", { "clip-path": `url(#${clip})` });
      for (const line of lines()) {
        if (hidden.has(line.series.name)) continue;
        const points = (list) => line.x.map((at, i) => [at > 0 ? Math.log10(at) : null, list[i] === null ? null : toAxis(list[i])]).filter(([a, v]) => a !== null && v !== null).map(([a, v]) => `${x(a).toFixed(1)},${y(v).toFixed(1)}`);
        const [low, high, mean] = [points(line.low), points(line.high), points(line.mean)];
        if (low.length) draw(inside, "polygon", { class: "band", points: [...high, ...low.reverse()].join(" "), style: `fill: ${colour(line.series)}` });
        draw(inside, "polyline", { class: "curve", points: mean.join(" "), style: `stroke: ${colour(line.series)}`, "stroke-dasharray": DASHES[line.series.preset], "data-series": line.series.name });
      }
      geometry.cursor = draw(inside, "line", { class: "cursor", y1: edge.top, y2: height - edge.bottom, visibility: "hidden" });
      geometry.selection = draw(inside, "rect", { class: "selection", visibility: "hidden" });
      geometry.svg = svg;
      showCursor();
    }

    function valueAt(line, iteration) {
      let place = 0;
      while (place + 1 < line.x.length && line.x[place + 1] <= iteration) place += 1;
      return line.mean[place];
    }
    const placeText = (place) => ({ iteration: `iteration ${place}`, solves: `${place} solves`, seconds: `${short(place)} s` })[across()];
    function showCursor() {
      const at = cursor ?? longest();
      if (cursor !== null) {
        const place = geometry.x(Math.log10(cursor));
        for (const end of ["x1", "x2"]) geometry.cursor.setAttribute(end, place);
        geometry.cursor.setAttribute("visibility", "visible");
      }
      legend.querySelector(".at").textContent = cursor === null ? "at the end" : `at ${placeText(at)}`;
      for (const [line, output] of values) output.textContent = short(valueAt(line, at));
    }
    function speak() {
      const words = values.filter(([line]) => !hidden.has(line.series.name)).map(([line]) => `${line.series.name}: ${short(valueAt(line, cursor))}`);
      role(root, "spoken").textContent = `At ${placeText(cursor)}. ${words.join("; ")}`;
    }

    function renderLegend() {
      legend.replaceChildren();
      values = [];
      const heading = make(legend, "div", { class: "legend-heading" });
      make(heading, "span", {}, data.quantities[quantity()].title);
      make(heading, "span", { class: "at" });
      for (const line of lines()) {
        const name = line.series.name;
        const button = make(legend, "button", { type: "button", "aria-pressed": String(!hidden.has(name)), "data-series": name });
        const swatch = draw(button, "svg", { width: 26, height: 10, "aria-hidden": "true" });
        draw(swatch, "line", { x1: 0, x2: 26, y1: 5, y2: 5, "stroke-width": 3, "stroke-dasharray": DASHES[line.series.preset], style: `stroke: ${colour(line.series)}` });
        make(button, "span", {}, name);
        values.push([line, make(button, "span", { class: "value" })]);
        button.addEventListener("click", () => {
          if (!hidden.delete(name)) hidden.add(name);
          button.setAttribute("aria-pressed", String(!hidden.has(name)));
          render();
        });
      }
    }
    function restart() { view = null; cursor = null; renderLegend(); render(); }

    function zoom(factor) {
      const box = view ?? fullView();
      const middle = cursor === null ? (box.x0 + box.x1) / 2 : Math.min(box.x1, Math.max(box.x0, Math.log10(cursor)));
      const whole = fullView();
      const x0 = Math.max(whole.x0, middle - (middle - box.x0) * factor);
      const x1 = Math.min(whole.x1, middle + (box.x1 - middle) * factor);
      const y = (box.y0 + box.y1) / 2;
      const half = ((box.y1 - box.y0) / 2) * factor;
      view = x0 <= whole.x0 && x1 >= whole.x1 ? null : { x0, x1, y0: y - half, y1: y + half };
      render();
    }
    function reset() { view = null; render(); }

    function pointAt(event) {
      const frame = geometry.svg.getBoundingClientRect();
      const scale = geometry.width / frame.width;
      const px = (event.clientX - frame.left) * scale;
      const py = (event.clientY - frame.top) * scale;
      const { box, edge, width, height } = geometry;
      const across = Math.min(1, Math.max(0, (px - edge.left) / (width - edge.left - edge.right)));
      const up = Math.min(1, Math.max(0, (height - edge.bottom - py) / (height - edge.top - edge.bottom)));
      return { px, py, x: box.x0 + across * (box.x1 - box.x0), y: box.y0 + up * (box.y1 - box.y0) };
    }
    let start = null;
    plot.addEventListener("pointerdown", (event) => {
      if (event.pointerType !== "touch" && event.button === 0) { start = pointAt(event); plot.setPointerCapture(event.pointerId); }
    });
    plot.addEventListener("pointermove", (event) => {
      const point = pointAt(event);
      cursor = isCounted() ? Math.max(1, Math.round(10 ** point.x)) : 10 ** point.x;
      showCursor();
      if (!start) return;
      const attributes = { x: Math.min(start.px, point.px), y: Math.min(start.py, point.py), width: Math.abs(point.px - start.px), height: Math.abs(point.py - start.py), visibility: "visible" };
      for (const [key, value] of Object.entries(attributes)) geometry.selection.setAttribute(key, value);
    });
    plot.addEventListener("pointerup", (event) => {
      if (!start) return;
      const [from, to] = [start, pointAt(event)];
      start = null;
      geometry.selection.setAttribute("visibility", "hidden");
      if (Math.abs(from.px - to.px) < 8 || Math.abs(from.py - to.py) < 8) return; // a click, not a drag
      view = { x0: Math.min(from.x, to.x), x1: Math.max(from.x, to.x), y0: Math.min(from.y, to.y), y1: Math.max(from.y, to.y) };
      render();
    });
    plot.addEventListener("pointercancel", () => { start = null; geometry.selection.setAttribute("visibility", "hidden"); });
    plot.addEventListener("dblclick", reset);
    plot.addEventListener("keydown", (event) => {
      const stops = unique(lines().flatMap((line) => line.x)).filter((stop) => stop > 0).sort((a, b) => a - b);
      const now = cursor ?? longest();
      const actions = {
        ArrowLeft: () => { cursor = stops.filter((stop) => stop < now).at(-1) ?? stops[0]; showCursor(); speak(); },
        ArrowRight: () => { cursor = stops.find((stop) => stop > now) ?? stops.at(-1); showCursor(); speak(); },
        "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: reset, Escape: reset,
      };
      if (!actions[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      actions[event.key]();
    });
    role(root, "in").addEventListener("click", () => zoom(0.5));
    role(root, "out").addEventListener("click", () => zoom(2));
    role(root, "reset").addEventListener("click", reset);
    role(root, "all").addEventListener("click", () => { for (const line of lines()) hidden.delete(line.series.name); renderLegend(); render(); });
    role(root, "none").addEventListener("click", () => { for (const line of lines()) hidden.add(line.series.name); renderLegend(); render(); });
    chooseDataset.addEventListener("change", restart);
    chooseQuantity.addEventListener("change", restart);
    chooseAcross.addEventListener("change", restart);
    restart();
    let width = plot.clientWidth;
    new ResizeObserver(() => { if (plot.clientWidth !== width) { width = plot.clientWidth; render(); } }).observe(plot);
  }

  // --- confusion matrices

  function Confusions(root) {
    const [chooseDataset, chooseMethod, content] = ["dataset", "method", "content"].map((name) => role(root, name));
    const datasets = unique(data.confusions.map((matrix) => matrix.dataset));
    fill(chooseDataset, datasets);
    const members = () => data.confusions.filter((matrix) => matrix.dataset === datasets[Number(chooseDataset.value)]);
    function render() {
      const matrix = members()[Number(chooseMethod.value)];
      content.replaceChildren();
      if (!matrix) return;
      const table = make(content, "table", { class: "confusion" });
      make(make(table, "caption"), "span", {}, `${matrix.dataset}, ${matrix.name}: how many test images of each class were taken for which`);
      const head = make(make(table, "thead"), "tr");
      make(head, "th", { scope: "col" }, "true \\ predicted");
      for (const name of matrix.classes) make(head, "th", { scope: "col" }, name);
      make(head, "th", { scope: "col" }, "Recall");
      const body = make(table, "tbody");
      matrix.counts.forEach((counts, truth) => {
        const row = make(body, "tr");
        const total = counts.reduce((sum, count) => sum + count, 0) || 1;
        make(row, "th", { scope: "row" }, matrix.classes[truth]);
        counts.forEach((count, predicted) => {
          make(row, "td", { class: truth === predicted ? "right" : "", style: `--share: ${(55 * count / total).toFixed(0)}%` }, String(count));
        });
        make(row, "td", {}, `${(100 * counts[truth] / total).toFixed(0)} %`);
      });
    }
    function restart() {
      fill(chooseMethod, members().map((matrix) => matrix.name));
      const best = members().findIndex((matrix) => matrix.name.startsWith("QUBO 20-bit, matched"));
      chooseMethod.value = String(Math.max(0, best));
      render();
    }
    chooseDataset.addEventListener("change", restart);
    chooseMethod.addEventListener("change", render);
    restart();
  }

  // --- sample predictions

  function Samples(root) {
    const [chooseDataset, chooseMethods, content] = ["dataset", "methods", "content"].map((name) => role(root, name));
    fill(chooseDataset, data.samples.map((set) => set.dataset));
    fill(chooseMethods, ["most bits of each preset", "all"]);
    function bars(parent, set, probabilities, truth) {
      const winner = probabilities.indexOf(Math.max(...probabilities));
      const right = winner === truth;
      const words = `${(100 * probabilities[truth]).toFixed(0)} %, ${right ? "right" : `says ${set.classes[winner]}`}`;
      const all = probabilities.map((p, i) => `${set.classes[i]} ${(100 * p).toFixed(0)} %`).join(", ");
      const svg = draw(parent, "svg", { width: 120, height: 44, viewBox: "0 0 120 44", role: "img", "aria-label": all });
      const step = 120 / probabilities.length;
      probabilities.forEach((p, i) => {
        const box = { x: i * step + 1, width: step - 2, y: 43 - 40 * p, height: 40 * p };
        const bar = draw(svg, "rect", { class: `bar ${i === winner ? (right ? "good" : "bad") : ""}`, ...box });
        draw(bar, "title", {}, `${set.classes[i]}: ${(100 * p).toFixed(1)} %`);
        if (i === truth) draw(svg, "rect", { class: "frame", x: i * step + 0.5, width: step - 1, y: 2, height: 41 });
      });
      draw(svg, "line", { class: "base", x1: 0, x2: 120, y1: 43.5, y2: 43.5 });
      make(parent, "small", {}, words);
    }
    function render() {
      const set = data.samples[Number(chooseDataset.value)];
      content.replaceChildren();
      if (!set) return;
      const table = make(content, "table", { class: "samples" });
      make(make(table, "caption"), "span", {}, `${set.dataset}, seed ${set.seed}: probability of the true class, and the verdict`);
      const head = make(make(table, "thead"), "tr");
      make(head, "th", { scope: "col" }, "Image");
      const main = set.methods.filter((method) => method.main);
      const methods = chooseMethods.value === "0" && main.length ? main : set.methods;
      for (const method of methods) make(head, "th", { scope: "col" }, method.name);
      const body = make(table, "tbody");
      set.labels.forEach((truth, sample) => {
        const row = make(body, "tr");
        const title = make(row, "th", { scope: "row" });
        make(title, "img", { src: set.images[sample], alt: `Test image of class ${set.classes[truth]}`, width: 56, height: 56 });
        make(title, "span", {}, set.classes[truth]);
        for (const method of methods) bars(make(row, "td"), set, method.probabilities[sample].map((p) => p ?? 0), truth);
      });
    }
    chooseDataset.addEventListener("change", render);
    chooseMethods.addEventListener("change", render);
    render();
  }

  document.querySelectorAll('[data-chart="curves"]').forEach((root, number) => CurveChart(root, number));
  document.querySelectorAll('[data-chart="confusions"]').forEach(Confusions);
  document.querySelectorAll('[data-chart="samples"]').forEach(Samples);
})();
