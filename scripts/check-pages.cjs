// Opens pages in a headless Chromium and holds each to what is promised of it. Called by check-pages.sh:
//   node check-pages.cjs BROWSER DIR PAGE...
// Screenshots of each page, light, dark and as wide as a phone, go to DIR/screenshots; a table goes to standard output.
"use strict";
const fs = require("node:fs");
const path = require("node:path");
const puppeteer = require("puppeteer-core");
const axe = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const MAX_BYTES = 5e6;
const MAX_OPEN_MS = 2000;
/// Nothing that a reader does may keep the page busy for longer: a script that never ends.
const MAX_STEP_MS = 60_000;
const LOOKS = [
  { name: "light", theme: "light", width: 1280, height: 900 },
  { name: "dark", theme: "dark", width: 1280, height: 900 },
  { name: "phone", theme: "light", width: 390, height: 844, hasTouch: true, isMobile: true, deviceScaleFactor: 2 },
];

/// Notes what is written on each canvas since it was last cleared, as boxes in its own pixels; text at a slant is left out.
function note() {
  const notes = new Map();
  const { fillText, clearRect } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.clearRect = function (...box) {
    notes.delete(this.canvas);
    return clearRect.apply(this, box);
  };
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...rest) {
    const { a, b, d, e, f } = this.getTransform();
    if (b === 0 && String(text).trim()) {
      const size = this.measureText(text);
      if (!notes.has(this.canvas)) notes.set(this.canvas, []);
      notes.get(this.canvas).push({
        text: String(text),
        left: a * (x - size.actualBoundingBoxLeft) + e,
        right: a * (x + size.actualBoundingBoxRight) + e,
        top: d * (y - size.actualBoundingBoxAscent) + f,
        bottom: d * (y + size.actualBoundingBoxDescent) + f,
      });
    }
    return fillText.call(this, text, x, y, ...rest);
  };
  window.touching = () => {
    const near = 2 * devicePixelRatio;
    const faults = [];
    for (const [canvas, boxes] of notes) {
      if (!canvas.isConnected) continue;
      boxes.forEach((one, i) => {
        const hit = boxes.slice(i + 1).find((other) => one.left < other.right + near && other.left < one.right + near
          && one.top < other.bottom && other.top < one.bottom);
        const chart = canvas.closest(".chart")?.id;
        if (hit) faults.push(`labels touch in ${chart}: "${one.text}" and "${hit.text}"`);
        if (one.left < 0 || one.right > canvas.width) faults.push(`a label is cut off in ${chart}: "${one.text}"`);
      });
    }
    return faults;
  };
}

/// What is wrong with a page in one look.
async function look(browser, page, look, shots) {
  const tab = await browser.newPage();
  const faults = [];
  const url = `file://${page}`;
  tab.on("console", (message) => {
    if (["error", "warn"].includes(message.type())) faults.push(`console ${message.type()}: ${message.text()}`);
  });
  tab.on("pageerror", (error) => faults.push(`script: ${error.message}`));
  tab.on("request", (request) => {
    if (request.url() !== url && !request.url().startsWith("data:")) faults.push(`request: ${request.url()}`);
  });
  const { name, theme, ...viewport } = look;
  await tab.setViewport(viewport);
  await tab.emulateMediaFeatures([{ name: "prefers-color-scheme", value: theme }]);
  await tab.evaluateOnNewDocument(note);
  await tab.goto(url, { waitUntil: "load" });
  // Until the charts stand and a frame is painted.
  await tab.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  const opened = await tab.evaluate(() => performance.now());
  if (opened > MAX_OPEN_MS) faults.push(`opens in ${Math.round(opened)} ms, more than ${MAX_OPEN_MS} ms`);
  const wide = await tab.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  if (wide > 0) faults.push(`is ${wide} px wider than the window`);
  const charts = await tab.evaluate(() => document.querySelectorAll(".chart canvas").length);
  faults.push(...await tab.evaluate(() => window.touching()));
  try {
    await exercise(tab, faults);
  } catch (error) {
    if (!(error instanceof Hangs)) throw error;
    faults.push(error.message);
    return { faults: faults.map((fault) => `${name}: ${fault}`), opened, charts, hangs: true };
  }
  await tab.evaluate(axe);
  const { violations } = await tab.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
  for (const { id, impact, nodes } of violations) {
    const text = `axe ${impact}: ${id}, ${nodes.length} times, such as ${nodes[0].html.slice(0, 120)}`;
    if (impact !== "minor") faults.push(text);
  }
  await tab.screenshot({ path: path.join(shots, `${label(page)}-${name}.png`), fullPage: true });
  if (name === "light") await tab.pdf({ path: path.join(shots, `${label(page)}.pdf`), format: "A4" });
  await tab.close();
  return { faults: faults.map((fault) => `${name}: ${fault}`), opened, charts };
}

/// Uses what can be used, and puts it back: whatever breaks tells itself by an error. Charts are drawn after the script that asks for it, so
/// that each click is followed by a frame. Each runs in the page and returns what is wrong.
const STEPS = {
  "hiding one system": async () => {
    const rows = () => [...document.querySelectorAll("tr[data-system]")].filter((row) => !row.hidden).length;
    const chip = document.querySelector("[data-toggle]");
    if (!chip) return [];
    const wrong = [];
    const before = rows();
    chip.click();
    if (chip.getAttribute("aria-pressed") !== "false" || rows() >= before) wrong.push("a system cannot be hidden");
    await window.painted();
    chip.click();
    if (rows() !== before) wrong.push("a system cannot be shown again");
    return wrong;
  },
  "hiding every system": async () => {
    const chips = [...document.querySelectorAll("[data-toggle]")];
    for (const chip of [...chips, ...chips]) {
      chip.click();
      await window.painted();
    }
    const shown = chips.every((chip) => chip.getAttribute("aria-pressed") === "true");
    return shown ? [] : ["systems that were hidden are not shown again"];
  },
  "hiding every line of a legend": async () => {
    const wrong = [];
    for (const chart of document.querySelectorAll(".chart")) {
      const names = [...chart.querySelectorAll(".u-legend th[role=button]")];
      for (const name of [...names, ...names]) {
        name.click();
        await window.painted();
      }
      if (names.some((name) => name.getAttribute("aria-pressed") !== "true")) wrong.push(`${chart.id}: a line stays hidden`);
    }
    return wrong;
  },
  "choosing each option": async () => {
    for (const select of document.querySelectorAll("select")) {
      const before = select.value;
      for (const value of [...[...select.options].map((option) => option.value), before]) {
        select.value = value;
        select.dispatchEvent(new Event("change"));
        await window.painted();
      }
    }
    return [];
  },
  "zooming by keys": async () => {
    for (const chart of document.querySelectorAll(".u-wrap")) {
      const press = (key) => chart.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
      for (const key of ["+", "ArrowRight", "-", "0"]) press(key);
      // As far as anybody would.
      for (let i = 0; i < 120; i++) press("+");
      await window.painted();
      press("0");
    }
    await window.painted();
    return [];
  },
  "changing the theme": async () => {
    for (let i = 0; i < 2; i++) {
      document.getElementById("theme").click();
      await window.painted();
    }
    return [];
  },
};

/// Until a frame is painted, in the page.
function painted() {
  window.painted = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
}

/// A page that hangs answers no more: what it hung at is its last fault.
class Hangs extends Error {}

async function exercise(tab, faults) {
  await tab.evaluate(painted);
  for (const [name, step] of Object.entries(STEPS)) {
    let late;
    const limit = new Promise((_, fail) => {
      late = setTimeout(() => fail(new Hangs(`${name}: the page hangs`)), MAX_STEP_MS);
    });
    faults.push(...await Promise.race([tab.evaluate(step), limit]));
    clearTimeout(late);
  }
}

/// A page's name in the table: its file, or its folder where that is a report.html.
function label(page) {
  const name = path.basename(page, ".html");
  return name === "report" || name === "plan" ? path.basename(path.dirname(page)) : name;
}

async function main() {
  const [executablePath, folder, ...pages] = process.argv.slice(2);
  const shots = path.join(folder, "screenshots");
  fs.mkdirSync(shots, { recursive: true });
  // A container's root cannot have a sandbox, and the pages are our own.
  const launch = () => puppeteer.launch({ executablePath, args: ["--no-sandbox"], protocolTimeout: 2 * MAX_STEP_MS });
  let browser = await launch();
  let failed = 0;
  console.log("page          kB  charts  opens ms  faults");
  for (const page of pages) {
    const bytes = fs.statSync(page).size;
    const seen = [];
    for (const each of LOOKS) {
      const one = await look(browser, page, each, shots);
      seen.push(one);
      if (one.hangs) {
        // Nor does the browser close while a page of its hangs.
        browser.process().kill("SIGKILL");
        browser = await launch();
      }
    }
    const faults = seen.flatMap((one) => one.faults);
    if (bytes > MAX_BYTES) faults.push(`weighs ${bytes} bytes, more than ${MAX_BYTES}`);
    const slowest = Math.round(Math.max(...seen.map((one) => one.opened)));
    const cells = [label(page).padEnd(12), String(Math.round(bytes / 1e3)).padStart(5), String(seen[0].charts).padStart(6)];
    console.log(`${cells.join("  ")}  ${String(slowest).padStart(8)}  ${faults.length || "none"}`);
    for (const fault of new Set(faults)) console.log(`    ${fault}`);
    failed += faults.length;
  }
  await browser.close();
  process.exit(failed ? 1 : 0);
}

main();
