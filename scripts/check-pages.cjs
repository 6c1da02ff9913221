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
  await exercise(tab, faults);
  await tab.evaluate(axe);
  const { violations } = await tab.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
  for (const { id, impact, nodes } of violations) {
    const text = `axe ${impact}: ${id}, ${nodes.length} times, such as ${nodes[0].html.slice(0, 120)}`;
    if (impact === "serious" || impact === "critical") faults.push(text);
  }
  await tab.screenshot({ path: path.join(shots, `${label(page)}-${name}.png`), fullPage: true });
  if (name === "light") await tab.pdf({ path: path.join(shots, `${label(page)}.pdf`), format: "A4" });
  await tab.close();
  return { faults: faults.map((fault) => `${name}: ${fault}`), opened, charts };
}

/// Uses what can be used, and puts it back: whatever breaks tells itself by an error.
async function exercise(tab, faults) {
  const broken = await tab.evaluate(() => {
    const wrong = [];
    const rows = () => [...document.querySelectorAll("tr[data-system]")].filter((row) => !row.hidden).length;
    const chip = document.querySelector("[data-toggle]");
    if (chip) {
      const before = rows();
      chip.click();
      if (chip.getAttribute("aria-pressed") !== "false" || rows() >= before) wrong.push("a system cannot be hidden");
      chip.click();
      if (rows() !== before) wrong.push("a system cannot be shown again");
    }
    for (const select of document.querySelectorAll("select")) {
      const before = select.value;
      for (const option of [...select.options].slice(0, 8)) {
        select.value = option.value;
        select.dispatchEvent(new Event("change"));
      }
      select.value = before;
      select.dispatchEvent(new Event("change"));
    }
    for (const chart of document.querySelectorAll(".u-wrap")) {
      for (const key of ["+", "ArrowRight", "-", "0"]) chart.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    }
    const theme = document.getElementById("theme");
    theme.click();
    theme.click();
    return wrong;
  });
  faults.push(...broken);
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
  const browser = await puppeteer.launch({ executablePath, args: ["--no-sandbox"] });
  let failed = 0;
  console.log("page          kB  charts  opens ms  faults");
  for (const page of pages) {
    const bytes = fs.statSync(page).size;
    const seen = [];
    for (const each of LOOKS) seen.push(await look(browser, page, each, shots));
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
