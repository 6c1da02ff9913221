// Draws what #chart-data describes, lets the reader choose systems and sweep points, and switches between light and dark. The page
// reads without it.
"use strict";
(() => {
  const root = document.documentElement;
  const specs = JSON.parse(document.getElementById("chart-data").textContent);
  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const narrow = () => innerWidth < 640;

  // What the reader chose, for the whole page.
  const hidden = new Set();
  const pointSelect = document.getElementById("point");
  let point = 0;

  const number = (value, decimals) => {
    if (value === 0) return "0";
    const digits = decimals ?? Math.min(6, Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value)))));
    return value.toLocaleString("en", { maximumFractionDigits: digits });
  };
  // As many decimals as all of an axis' marks have, so that no two carry the same number.
  const decimals = (marks) => {
    const whole = (value) => Math.abs(value - Math.round(value)) <= Math.min(1, Math.abs(value)) * 1e-4;
    return [0, 1, 2, 3, 4, 5, 6].find((count) => marks.every((mark) => whole(mark * 10 ** count)));
  };
  const shown = (axis) => (value) => {
    if (value == null) return "–";
    if (axis.names) return axis.names[Math.round(value)] ?? "";
    return axis.percent ? `${(value * 100).toFixed(1)} %` : number(value);
  };

  // The ends of bars at points that are shown.
  const endsShown = (plot, view) => {
    const { min, max } = plot.scales.x;
    const within = (x) => (min == null || x >= min) && (max == null || x <= max);
    const of = (line, index) => (plot.series[index + 1].show === false ? [] : (line.spans ?? []).filter((ends, at) => ends && within(view.xs[at])));
    return view.lines.flatMap(of).flat();
  };

  // Zero to a little above the most; shares from nothing to all; a logarithmic scale just as wide as its data. Where all lines are
  // hidden there are no ends, and any scale will do that has a width.
  const range = (axis, view) => (plot, lowest, highest) => {
    const ends = endsShown(plot, view).filter((end) => !axis.log || end > 0);
    const [least, most] = [Math.min(lowest, ...ends), Math.max(highest, ...ends)];
    if (axis.percent) return [0, 1];
    if (axis.log && !(least > 0)) return [1, 10];
    if (axis.log) return least === most ? [least / 2, most * 2] : [least / 1.1, most * 1.1];
    return [0, most > 0 ? most * 1.05 : 1];
  };
  const along = (axis, marked) => (_, least, most) => {
    if (axis.names) return [least - 0.5, most + 0.5];
    if (least === most) return axis.log ? [least / 2, most * 2] : [least - 1, most + 1];
    if (!marked) return [least, most];
    return axis.log ? [least / 1.1, most * 1.1] : [least - (most - least) * 0.03, most + (most - least) * 0.03];
  };
  // However far a reader zooms in, marks stay numbers of their own.
  const apart = (axis, whole) => (_, least, most) => {
    const floor = (axis.log ? least : whole[1] - whole[0]) * 1e-6;
    return [least, Math.max(most, least + floor)];
  };
  const scale = (axis, range) => ({ time: false, distr: axis.log ? 3 : 1, range });

  // Labels of an axis must not touch, however narrow the chart is.
  const FONT = "12px system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif";
  const GAP = 8;
  const pen = document.createElement("canvas").getContext("2d");
  const wide = (text) => {
    pen.font = FONT;
    return pen.measureText(text).width;
  };
  // The end of a key's path tells most where the whole of it has no room.
  const fitting = (label, room) => {
    const parts = label.split(".");
    const text = () => (parts.join(".") === label ? label : `…${parts.join(".")}`);
    // Titles are bold: a tenth wider.
    while (parts.length > 1 && wide(text()) * 1.1 > room) parts.shift();
    return text();
  };
  const written = (axis, values) => {
    const count = decimals(values.filter((value) => value != null));
    const one = (value) => {
      if (value == null) return "";
      if (axis.names) return shown(axis)(value);
      return axis.percent ? `${Math.round(value * 100)} %` : number(value, count);
    };
    return values.map(one);
  };
  // Which of the labels at these values have room on the way from left to right.
  const roomy = (plot, values, labels) => {
    let end = -Infinity;
    return labels.map((label, i) => {
      const [middle, half] = [plot.valToPos(values[i], "x"), wide(label) / 2];
      if (middle - half < end + GAP) return false;
      end = middle + half;
      return true;
    });
  };
  const LINE = 14;
  const stacked = (plot, values) =>
    values.every((value, i) => i === 0 || !(Math.abs(plot.valToPos(value, "y") - plot.valToPos(values[i - 1], "y")) < LINE));
  // At a step of 1, 2 or 5 times a power of ten, some `count` of them.
  const evenly = (least, most, count) => {
    const rough = (most - least) / count;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((times) => times * power).find((size) => size >= rough);
    const found = [];
    for (let index = Math.ceil(least / step); index * step <= most; index++) found.push(Number((index * step).toPrecision(12)));
    return found;
  };
  // A logarithmic axis is marked at 1, 2, 5, 10, 20 …; a long one only at powers of ten, a short one at every digit, one up the side that
  // is shorter still between them, one with fewer than three such marks at even steps; and ever more coarsely where labels have no room.
  const digits = [[1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 5], [1]];
  const between = [1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9];
  const marks = (axis, across) => (plot, _, least, most) => {
    // A logarithmic axis that begins at zero never ends.
    if (!(least > 0 && most < Infinity)) return [];
    const first = most / least > 1e4 ? 2 : most / least > 12 ? 1 : 0;
    const fit = (found) => (across ? roomy(plot, found, written(axis, found)).every(Boolean) : stacked(plot, found));
    const steps = !across && most / least < 5 ? [between, ...digits] : digits;
    let found = [];
    for (let coarse = first; coarse < steps.length + 3; coarse++) {
      const every = Math.max(1, coarse - steps.length + 2);
      found = [];
      for (let power = Math.floor(Math.log10(least)); 10 ** power <= most; power++) {
        if (power % every) continue;
        const here = steps[Math.min(coarse, steps.length - 1)].map((digit) => Number(`${digit}e${power}`));
        found.push(...here.filter((mark) => mark >= least && mark <= most));
      }
      if (fit(found)) break;
    }
    if (found.length >= 3) return found;
    const even = [6, 4, 3, 2].map((count) => evenly(least, most, count)).find(fit) ?? [];
    return even.length > found.length ? even : found;
  };
  // Names that have no room side by side are written at a slant.
  const SLANT = 40;
  const [DOWN, ALONG] = [Math.sin, Math.cos].map((of) => of((SLANT * Math.PI) / 180));
  const straight = (plot, labels) => roomy(plot, labels.map((_, i) => i), labels).every(Boolean);
  const slanted = (size) => ({
    rotate: (plot, labels) => (straight(plot, labels) ? 0 : -SLANT),
    size: (plot, labels) => (!labels || straight(plot, labels) ? size : size + Math.max(...labels.map(wide)) * DOWN),
  });
  // The last of them goes on beyond the plot, and all of them below it: both take room of their own.
  const beyond = ({ names }) => (plot) => {
    if (!plot.valToPos || straight(plot, names)) return GAP; // asked first before there is a scale
    const half = plot.bbox.width / devicePixelRatio / names.length / 2;
    const over = names.map((name, i) => wide(name) * ALONG - half * (2 * (names.length - i) - 1));
    return Math.max(0, ...over) + GAP;
  };
  const below = ({ names }, room) => {
    const widest = Math.max(0, ...(names ?? []).map(wide));
    return widest + GAP > room / (names ?? []).length ? widest * DOWN : 0;
  };
  // Of few values each is marked.
  const swept = (xs) => (_, __, least, most) => [...new Set(xs)].filter((x) => x >= least && x <= most);
  const named = (axis) => (_, __, least, most) => axis.names.map((_, i) => i).filter((i) => i >= least && i <= most);
  const ruler = (axis, size, across = false) => ({
    size,
    ...(axis.log && { splits: marks(axis, across), filter: (_, splits) => splits }),
    ...(axis.names && { splits: named(axis), ...(across && slanted(size)) }),
    ...(across && { space: (_, __, least, most) => Math.max(50, ...[least, most].map((end) => wide(shown(axis)(end)) + 2 * GAP)) }),
    font: FONT,
    label: axis.label,
    labelSize: 24,
    stroke: css("--dim"),
    grid: { stroke: css("--grid"), width: 1 },
    ticks: { stroke: css("--grid"), width: 1 },
    values: (plot, splits) => {
      const labels = written(axis, splits);
      if (!across || axis.names) return labels;
      const room = roomy(plot, splits, labels);
      return labels.map((label, i) => (room[i] ? label : ""));
    },
  });

  // A value between gaps is on no line: it is drawn as a point.
  const alone = (ys) => ys.flatMap((y, i) => (y != null && ys[i - 1] == null && ys[i + 1] == null ? [i] : []));

  // Marks that would cover each other are small.
  const CROWD = 60;
  const mark = (line) => (line.ys.length > CROWD
    ? { show: true, size: 4, fill: css(`--c${line.color}`), width: 1 }
    : { show: true, size: 7, fill: css("--page"), width: 2 });

  const dashes = { dashed: [8, 4], dotted: [2, 3], mixed: [10, 3, 2, 3] };
  const line = (view) => (line) => ({
    label: line.name,
    stroke: css(`--c${line.color}`),
    width: line.stroke === "none" ? 0 : 2,
    dash: dashes[line.stroke],
    points: line.points
      ? mark(line)
      : { show: true, size: 4, fill: css(`--c${line.color}`), width: 0, filter: () => alone(line.ys) },
    show: !hidden.has(line.system),
    spanGaps: Boolean(line.points),
    value: (_, value) => shown(view.y)(value),
  });

  // From the least to the most of what a point is the mean of.
  const spans = (view) => (plot) => {
    const { ctx } = plot;
    ctx.save();
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([]);
    view.lines.forEach((line, index) => {
      if (!plot.series[index + 1].show) return;
      ctx.strokeStyle = css(`--c${line.color}`);
      (line.spans ?? []).forEach((ends, i) => {
        const x = plot.valToPos(view.xs[i], "x", true);
        if (!ends || x < plot.bbox.left || x > plot.bbox.left + plot.bbox.width) return;
        const [from, to] = ends.map((end) => plot.valToPos(end, "y", true));
        ctx.beginPath();
        ctx.moveTo(x, from);
        ctx.lineTo(x, to);
        ctx.stroke();
      });
    });
    ctx.restore();
  };

  // A line across the chart at the latency target, upright or level.
  const target = (view) => (plot) => {
    if (!view.target) return;
    const { up, value } = view.target;
    const { left, top, width, height } = plot.bbox;
    const at = plot.valToPos(value, up ? "y" : "x", true);
    if (up ? at < top || at > top + height : at < left || at > left + width) return;
    const { ctx } = plot;
    const gap = 6 * devicePixelRatio;
    ctx.save();
    ctx.strokeStyle = css("--bad");
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([]);
    ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
    ctx.beginPath();
    ctx.moveTo(up ? left : at, up ? at : top);
    ctx.lineTo(up ? left + width : at, up ? at : top + height);
    ctx.stroke();
    ctx.textAlign = !up && at > left + width / 2 ? "right" : "left";
    const x = up ? left + gap : at + gap * (ctx.textAlign === "right" ? -1 : 1);
    const y = up ? at - gap : top + height - gap;
    const text = `target ${number(value)} ms`;
    // A halo keeps it readable where a curve passes behind it.
    ctx.strokeStyle = css("--page");
    ctx.lineWidth = 5 * devicePixelRatio;
    ctx.strokeText(text, x, y);
    ctx.fillStyle = css("--bad");
    ctx.fillText(text, x, y);
    ctx.restore();
  };

  // The legend's names are buttons for the keyboard and for screen readers too.
  const operable = (plot) => {
    all(".u-legend .u-series", plot.root).forEach((row, index) => {
      const name = row.querySelector("th");
      if (index === 0) return; // the x axis
      name.tabIndex = 0;
      name.setAttribute("role", "button");
      const tell = () => name.setAttribute("aria-pressed", String(plot.series[index].show));
      tell();
      name.addEventListener("click", () => queueMicrotask(tell));
      name.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        name.click();
      });
    });
  };

  // + and − zoom about the middle, arrows move, 0 shows all.
  const zoomable = (plot, whole) => {
    const steps = { "+": [0.25, -0.25], "=": [0.25, -0.25], "-": [-0.5, 0.5], ArrowLeft: [-0.2, -0.2], ArrowRight: [0.2, 0.2] };
    plot.over.parentElement.addEventListener("keydown", (event) => {
      const step = event.key === "0" ? null : steps[event.key];
      if (step === undefined) return;
      event.preventDefault();
      const log = plot.scales.x.distr === 3;
      const [to, from] = log ? [Math.log, Math.exp] : [Number, Number];
      const [least, most] = [to(plot.scales.x.min), to(plot.scales.x.max)];
      const [min, max] = step ? [least + step[0] * (most - least), most + step[1] * (most - least)].map(from) : whole;
      plot.setScale("x", { min: Math.max(min, whole[0]), max: Math.min(max, whole[1]) });
    });
  };

  const size = (holder, height) => ({ width: holder.clientWidth, height: height ?? (narrow() ? 240 : 300) });

  const announced = (plot, text) => {
    const canvas = plot.root.querySelector(".u-wrap");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", text);
    canvas.tabIndex = 0;
  };

  const chart = (spec, view, holder) => {
    const marked = view.lines.some((line) => line.points);
    const few = marked && !view.x.names && new Set(view.xs).size <= (narrow() ? 5 : 10);
    const whole = along(view.x, marked)(null, view.xs[0], view.xs[view.xs.length - 1]);
    const room = size(holder).width - 58 - 2 * GAP;
    const height = size(holder).height + below(view.x, room);
    const options = {
      ...size(holder, height),
      padding: [null, view.x.names ? beyond(view.x) : null, null, null],
      scales: { x: scale(view.x, apart(view.x, whole)), y: scale(view.y, range(view.y, view)) },
      axes: [{ ...ruler({ ...view.x, label: fitting(view.x.label, room) }, 42, true), ...(few && { splits: swept(view.xs), filter: (_, splits) => splits }) }, ruler(view.y, 58)],
      series: [{ label: view.x.label, value: (_, value) => shown(view.x)(value) }, ...view.lines.map(line(view))],
      legend: { markers: { width: 3, dash: (_, i) => (view.lines[i - 1]?.stroke ? "dashed" : "solid") } },
      cursor: { points: { size: 6 } },
      hooks: {
        draw: [spans(view), target(view)],
        setSeries: [(_, index, { show }) => {
          const system = view.lines[index - 1]?.system;
          if (show != null && system != null) toggle(system, show);
        }],
      },
    };
    const plot = new uPlot(options, [view.xs, ...view.lines.map((l) => l.ys)], holder);
    plot.setScale("x", { min: whole[0], max: whole[1] });
    plot.over.addEventListener("dblclick", () => plot.setScale("x", { min: whole[0], max: whole[1] }));
    plot.root.querySelector(".u-legend").setAttribute("role", "presentation");
    announced(plot, `${spec.title}. ${view.summary}.`);
    operable(plot);
    zoomable(plot, whole);
    return { plot, lines: view.lines, height: view.x.names && height };
  };

  // Lanes as rows, ops as bars.
  const kinds = ["compute", "copy", "lookup", "other"];
  const gantt = (spec, view, holder) => {
    const lanes = view.lanes.length;
    const start = Math.min(...view.ops.map((op) => op[3]));
    // Where ops are left out, as far as all is known.
    const end = view.until ?? Math.max(...view.ops.map((op) => op[3] + op[4]));
    const whole = [start / 1e3, end / 1e3];
    // The first few to begin with: all at once would be hairlines.
    const near = view.ops[Math.min(view.ops.length, narrow() ? 24 : 60) - 1];
    const first = [whole[0], Math.max(Math.min((near[3] + near[4]) / 1e3, whole[1]), whole[0] + 1e-3)];
    const y = (lane) => lanes - lane - 0.5;
    const bars = (plot) => {
      const { ctx, bbox } = plot;
      const height = Math.max(4, (bbox.height / lanes) * 0.7);
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
      for (const [lane, , kind, from, took] of view.ops) {
        const left = plot.valToPos(from / 1e3, "x", true);
        const right = plot.valToPos((from + took) / 1e3, "x", true);
        ctx.fillStyle = css(`--k-${kinds[kind]}`);
        // A gap, so that one bar is told from the next.
        ctx.fillRect(left, plot.valToPos(y(lane), "y", true) - height / 2, Math.max(right - left - devicePixelRatio, 1), height);
      }
      ctx.restore();
    };
    const readout = document.createElement("p");
    readout.className = "readout hint";
    const idle = `${view.ops.length} ops were noted over ${number(whole[1] - whole[0])} ms; double-click, or press 0, to see all.`;
    readout.textContent = idle;
    const read = (plot) => {
      const { left, top } = plot.cursor;
      if (left == null || left < 0) { readout.textContent = idle; return; }
      const time = plot.posToVal(left, "x") * 1e3;
      const lane = lanes - 1 - Math.floor(plot.posToVal(top, "y"));
      const op = view.ops.find(([on, , , from, took]) => on === lane && from <= time && time <= from + took);
      readout.textContent = op
        ? `${view.lanes[lane]}: ${view.names[op[1]]}, ${op[5]} requests, ${number(op[4] / 1e3)} ms from ${number(op[3] / 1e3)} ms on`
        : `${view.lanes[lane] ?? ""}: idle at ${number(time / 1e3)} ms`;
    };
    const axis = { label: "", log: false, percent: false };
    const options = {
      ...size(holder, 70 + lanes * 26),
      scales: { x: scale(axis, apart(axis, whole)), y: { time: false, range: [0, lanes] } },
      axes: [
        ruler({ ...axis, label: "Time since the start in ms" }, 42, true),
        {
          ...ruler(axis, Math.max(...view.lanes.map(wide)) + 24),
          labelSize: 0,
          splits: () => view.lanes.map((_, lane) => y(lane)),
          values: () => view.lanes,
          grid: { show: false },
        },
      ],
      series: [{}, { show: true, width: 0, points: { show: false } }],
      legend: { show: false },
      cursor: { y: false, points: { show: false } },
      hooks: { draw: [bars], setCursor: [read] },
    };
    const plot = new uPlot(options, [whole, [null, null]], holder);
    plot.setScale("x", { min: first[0], max: first[1] });
    plot.over.addEventListener("dblclick", () => plot.setScale("x", { min: whole[0], max: whole[1] }));
    announced(plot, `${spec.title}. ${view.summary}.`);
    zoomable(plot, whole);
    holder.append(readout);
    return { plot, lines: [], height: 70 + lanes * 26 };
  };

  // A chart with the choices that are its own: selects before it.
  const charts = specs.map((spec) => {
    const holder = document.getElementById(`chart-${spec.id}`);
    const choices = (spec.choices ?? []).map((choice) => ({ ...choice, at: 0 }));
    const self = { spec, holder, drawn: null };
    self.draw = () => {
      self.drawn?.plot.destroy();
      self.drawn = null;
      holder.replaceChildren();
      const index = choices.reduce((sum, choice) => sum * choice.options.length + (choice.point ? point : choice.at), 0);
      const view = spec.views[index];
      if ((view.ops ?? view.xs).length === 0) {
        const nothing = document.createElement("p");
        nothing.textContent = view.summary || "Nothing to draw at this choice.";
        holder.append(nothing);
        return;
      }
      self.drawn = view.ops ? gantt(spec, view, holder) : chart(spec, view, holder);
    };
    self.atPoint = choices.some((choice) => choice.point);
    for (const choice of choices.filter((choice) => !choice.point)) {
      const label = document.createElement("label");
      const select = document.createElement("select");
      choice.options.forEach((name, i) => select.add(new Option(name, i)));
      select.addEventListener("change", () => { choice.at = Number(select.value); self.draw(); });
      label.append(`${choice.label} `, select);
      document.getElementById(`choices-${spec.id}`).append(label);
    }
    return self;
  });
  const draw = () => charts.forEach((chart) => chart.draw());

  // Rows are shown where their system is, and at their sweep point where they are bound to one.
  const rows = all("[data-system]");
  const filter = () => rows.forEach((row) => {
    const away = row.dataset.point !== undefined && Number(row.dataset.point) !== point;
    row.hidden = away || hidden.has(Number(row.dataset.system));
  });
  const chips = all("[data-toggle]");
  let toggling = false;
  const toggle = (system, show) => {
    if (toggling || hidden.has(system) !== show) return;
    toggling = true;
    if (show) hidden.delete(system); else hidden.add(system);
    chips[system]?.setAttribute("aria-pressed", String(show));
    for (const { drawn } of charts) {
      drawn?.lines.forEach((line, i) => {
        if (line.system !== system) return;
        drawn.plot.setSeries(i + 1, { show });
        all(".u-legend .u-series", drawn.plot.root)[i + 1]?.querySelector("th").setAttribute("aria-pressed", String(show));
      });
    }
    filter();
    toggling = false;
  };
  chips.forEach((chip, system) => chip.addEventListener("click", () => toggle(system, hidden.has(system))));
  all(".controls").forEach((controls) => { controls.hidden = false; });

  const choosePoint = () => {
    point = Number(pointSelect.value);
    const name = pointSelect.selectedOptions[0].textContent;
    all(".point-name").forEach((place) => { place.textContent = `at ${name}`; });
    filter();
  };
  if (pointSelect) {
    pointSelect.addEventListener("change", () => {
      choosePoint();
      charts.filter((chart) => chart.atPoint).forEach((chart) => chart.draw());
    });
    choosePoint();
  }

  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("theme");
  const show = (theme) => {
    root.dataset.theme = theme;
    button.textContent = theme === "dark" ? "Light theme" : "Dark theme";
    draw();
  };
  button.hidden = false;
  button.addEventListener("click", () => show(root.dataset.theme === "dark" ? "light" : "dark"));
  prefersDark.addEventListener("change", () => show(prefersDark.matches ? "dark" : "light"));
  show(prefersDark.matches ? "dark" : "light");

  // Paper is white.
  let before = root.dataset.theme;
  addEventListener("beforeprint", () => { before = root.dataset.theme; show("light"); });
  addEventListener("afterprint", () => show(before));

  let pending = 0;
  addEventListener("resize", () => {
    cancelAnimationFrame(pending);
    pending = requestAnimationFrame(() =>
      charts.forEach(({ drawn, holder }) => drawn?.plot.setSize(size(holder, drawn.height))));
  });
})();
