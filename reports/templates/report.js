// Draws the charts of #chart-data and switches between light and dark. The page reads without it.
"use strict";
(() => {
  const root = document.documentElement;
  const specs = JSON.parse(document.getElementById("chart-data").textContent);
  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  const number = (value) => {
    if (value === 0) return "0";
    const digits = Math.min(6, Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value)))));
    return value.toLocaleString("en", { maximumFractionDigits: digits });
  };
  const shown = (axis) => (value) =>
    value == null ? "–" : axis.percent ? `${(value * 100).toFixed(1)} %` : number(value);

  // Zero to a little above the most; shares from nothing to all; a logarithmic scale just as wide as its data.
  const range = (axis) => (_, least, most) => {
    if (axis.percent) return [0, 1];
    if (axis.log) return [least, most];
    return [0, most > 0 ? most * 1.05 : 1];
  };
  const scale = (axis, horizontal) => ({
    time: false,
    distr: axis.log ? 3 : 1,
    range: horizontal ? (_, least, most) => [least, most] : range(axis),
  });
  // A logarithmic axis is marked at 1, 2, 5, 10, 20 …, however short it is; a long one only at powers of ten.
  const marks = (_, __, least, most) => {
    const steps = most / least > 1e4 ? [1] : [1, 2, 5];
    const marks = [];
    for (let power = 10 ** Math.floor(Math.log10(least)); power <= most; power *= 10) {
      marks.push(...steps.map((step) => step * power).filter((mark) => mark >= least && mark <= most));
    }
    return marks;
  };
  const ruler = (axis, size) => ({
    ...(axis.log && { splits: marks, filter: (_, splits) => splits }),
    label: axis.label,
    labelSize: 24,
    size,
    stroke: css("--dim"),
    grid: { stroke: css("--grid"), width: 1 },
    ticks: { stroke: css("--grid"), width: 1 },
    values: (_, splits) => splits.map((v) => (v == null ? "" : axis.percent ? `${Math.round(v * 100)} %` : number(v))),
  });

  const line = (spec) => (line) => ({
    label: line.name,
    stroke: css(`--c${line.color}`),
    width: 2,
    dash: line.dashed ? [7, 5] : undefined,
    points: { show: false },
    value: (_, value) => shown(spec.y)(value),
  });

  // A vertical line at the latency target.
  const target = (spec) => (plot) => {
    if (spec.target == null) return;
    const { left, top, width, height } = plot.bbox;
    const x = plot.valToPos(spec.target, "x", true);
    if (x < left || x > left + width) return;
    const { ctx } = plot;
    ctx.save();
    ctx.strokeStyle = css("--bad");
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([]);
    ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
    ctx.textAlign = x > left + width / 2 ? "right" : "left";
    ctx.beginPath();
    ctx.moveTo(x, top);
    ctx.lineTo(x, top + height);
    ctx.stroke();
    const text = `target ${number(spec.target)} ms`;
    const gap = 6 * devicePixelRatio * (ctx.textAlign === "right" ? -1 : 1);
    const bottom = top + height - 8 * devicePixelRatio;
    // A halo keeps it readable where a curve passes behind it.
    ctx.strokeStyle = css("--page");
    ctx.lineWidth = 5 * devicePixelRatio;
    ctx.strokeText(text, x + gap, bottom);
    ctx.fillStyle = css("--bad");
    ctx.fillText(text, x + gap, bottom);
    ctx.restore();
  };

  // The legend's names are buttons for the keyboard and for screen readers too.
  const operable = (plot) => {
    plot.root.querySelectorAll(".u-legend .u-series").forEach((row, index) => {
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

  let plots = [];
  const size = (holder) => ({ width: holder.clientWidth, height: holder.clientWidth < 420 ? 240 : 300 });
  const draw = () => {
    plots.forEach(({ plot }) => plot.destroy());
    plots = specs.map((spec) => {
      const holder = document.getElementById(`chart-${spec.id}`);
      const options = {
        ...size(holder),
        scales: { x: scale(spec.x, true), y: scale(spec.y, false) },
        axes: [ruler(spec.x, 42), ruler(spec.y, 58)],
        series: [{ label: spec.x.label, value: (_, value) => shown(spec.x)(value) }, ...spec.lines.map(line(spec))],
        legend: { markers: { width: 3, dash: (_, index) => (spec.lines[index - 1]?.dashed ? "dashed" : "solid") } },
        cursor: { points: { size: 6 } },
        hooks: { draw: [target(spec)] },
      };
      const plot = new uPlot(options, [spec.xs, ...spec.lines.map((l) => l.ys)], holder);
      const canvas = plot.root.querySelector(".u-wrap");
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", holder.dataset.summary);
      plot.root.querySelector(".u-legend").setAttribute("role", "presentation");
      operable(plot);
      return { plot, holder };
    });
  };

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
    pending = requestAnimationFrame(() => plots.forEach(({ plot, holder }) => plot.setSize(size(holder))));
  });
})();
