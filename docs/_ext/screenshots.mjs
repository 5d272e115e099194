// Pictures of pages of the built site, as a desktop, a phone and a dark desktop show them.
//
//   npm install playwright-core
//   node docs/_ext/screenshots.mjs docs/_build/html shots index howto/estimators
//
// CHROMIUM names the browser; a page that is wider than its window is reported.

import { chromium } from "playwright-core";
import { mkdirSync } from "node:fs";
import { resolve } from "node:path";

const [site, out, ...pages] = process.argv.slice(2);
const views = {
  desktop: { viewport: { width: 1280, height: 900 }, colorScheme: "light" },
  phone: { viewport: { width: 390, height: 844 }, colorScheme: "light" },
  dark: { viewport: { width: 1280, height: 900 }, colorScheme: "dark" },
};
mkdirSync(out, { recursive: true });
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"],
});
for (const [view, options] of Object.entries(views)) {
  const tab = await browser.newPage(options);
  for (const page of pages) {
    await tab.goto(`file://${resolve(site, `${page}.html`)}`);
    const width = await tab.evaluate(() => document.documentElement.scrollWidth);
    if (width > options.viewport.width) console.log(`${page}: ${width} wide, ${view}`);
    await tab.screenshot({ path: `${out}/${page.replaceAll("/", "_")}_${view}.png` });
  }
}
await browser.close();
