// Print Playwright's aria snapshot of each address, with those of its frames, and which of its buttons can be clicked, as JSON.
import { createRequire } from 'node:module';
const require = createRequire(process.argv[2] + '/');
const { chromium } = require('playwright-core');
const [program, ...urls] = process.argv.slice(3);
const browser = await chromium.launch({ executablePath: program, chromiumSandbox: false });
const page = await browser.newPage();
const texts = [], actions = {};
for (const url of urls) {
  await page.goto(url);
  const frames = page.frames().map((frame) => frame.locator('body').ariaSnapshot());
  texts.push((await Promise.all(frames)).join('\n'));
  const names = await page.locator('button[name]').evaluateAll((all) => all.map((button) => button.name));
  for (const name of names) {
    const tried = page.locator(`button[name=${name}]`).click({ trial: true, timeout: 1500 });
    actions[name] = await tried.then(() => true, () => false);
  }
}
await browser.close();
console.log(JSON.stringify({ texts, actions }));
