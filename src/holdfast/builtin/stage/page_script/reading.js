// What the tools that read a page call.

function rootOf(number) {
  if (number === undefined || number === null || number < 0) return documentElement(document) ?? document;
  return nodeOf(number);
}

// How many elements were not read, because there are too many.
const unread = (found) => found.cut ? Math.max(1, elementsByTag(document, '*').length - found.visited) : 0;

function walk(options) {
  next = options.next;
  const root = rootOf(options.within);
  if (root === null) return { gone: true, next };
  const found = outline(root, options);
  const lines = [];
  for (let i = 0; i < found.texts.length; i++) {
    const prefix = found.kinds[i] === 0 ? '- ' : '';
    lines.push(found.depths[i], found.refs[i], prefix + found.texts[i]);
  }
  return { lines, next, frames: found.frames.map((index) => [index, found.refs[index]]), ...ready(), cut: unread(found) };
}

// Line i without the role and the states, which the page does not show as text.
const wordsOf = (found, i) => found.kinds[i] === 0 ? found.texts[i] : found.texts[i].replace(/^[a-z0-9]+(\([a-z ]*\))?/, '');

// The lines that contain a text and have one of the roles, each with a ref.
function find(options) {
  next = options.next;
  const root = rootOf(options.within);
  if (root === null) return { gone: true, next };
  const found = outline(root, { refText: true, refAll: true, ms: options.ms });
  const wanted = (options.text ?? '').toLowerCase();
  const lines = [];
  const above = [];  // the lines around line i, from outside to inside
  for (let i = 0; i < found.texts.length; i++) {
    while (above.length && found.depths[above[above.length - 1]] >= found.depths[i]) above.pop();
    const around = above.length ? above[above.length - 1] : -1;
    above.push(i);
    const line = found.texts[i];
    const role = found.kinds[i] === 0 ? 'text' : /^[a-z0-9]+/.exec(line)?.[0] ?? '';
    if (options.roles && !options.roles.includes(role) && !(options.roles.includes('heading') && /^h\d$/.test(role))) continue;
    if (wanted !== '' && !wordsOf(found, i).toLowerCase().includes(wanted)) continue;
    const node = found.refs[i] === -1 ? null : nodeOf(found.refs[i]);
    // The buttons that belong to a text are in the same row or item.
    const place = ['text', 'cell', 'gridcell', 'rowheader'].includes(role) && around !== -1 && found.refs[around] !== -1 ? /^(row|item)\b/.exec(found.texts[around]) : null;
    let extra = place === null ? '' : ` (in ${place[1]} ${options.prefix}${found.refs[around]})`;
    if (options.details && node !== null && nodeType(node) === 1) {
      if (node instanceof HTMLAnchorElement) extra += ` -> ${clean(node.href, 300)}`;
      else if (node instanceof HTMLImageElement) extra += ` -> ${clean(node.currentSrc || node.src, 300)}`;
      const rect = boundingRect(node);
      extra += ` @${Math.round(rect.x)},${Math.round(rect.y)} ${Math.round(rect.width)}x${Math.round(rect.height)}`;
    }
    lines.push(0, found.refs[i], (found.kinds[i] === 0 ? '- ' : '') + line + extra);
  }
  if (found.cut && wanted !== '') findUnread(root, wanted, options, lines);
  return { lines, next, frames: framesOf(found), cut: unread(found) };
}
// Whether a text directly in this element would be in the outline.
const isTextShown = (element) => !['option', 'textarea'].includes(localName(element)) && checkVisibility(element, { visibilityProperty: true, opacityProperty: true }) &&
  closest(element, '[aria-hidden="true"]') === null && (namespaceURI(element) === HTML || closest(element, [...SVG_SKIPPED].join()) === null) && styleOf(element).fontSize !== '0px';
// The elements that show a text, on a page that is too large to be read as a whole: to search texts takes much less time.
function elementsWith(root, wanted, limit) {
  const elements = [];
  const walker = createTreeWalker(document, root, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node !== null && elements.length < limit; node = walker.nextNode()) {
    if (!node.data.toLowerCase().includes(wanted)) continue;
    const element = parentNode(node);
    if (nodeType(element) === 1 && isTextShown(element)) elements.push(element);
  }
  return elements;
}
function findUnread(root, wanted, options, lines) {
  const known = new Set();
  for (let at = 1; at < lines.length; at += 3) known.add(lines[at]);
  for (const element of elementsWith(root, wanted, 200)) {
    const role = roleOf(element, localName(element));
    if (known.has(refOf(element)) || (options.roles && !options.roles.includes(role || 'text'))) continue;
    known.add(refOf(element));
    const around = closest(element, 'tr, [role=row], li, [role=listitem]');
    const place = around === null || around === element ? '' : ` (in ${matches(around, 'tr, [role=row]') ? 'row' : 'item'} ${options.prefix}${refOf(around)})`;
    lines.push(0, refOf(element), `${role || '-'} ${clean(textOf(element, TEXT * 2), TEXT)}${place}`);
  }
}
// The numbers of the frames that are shown.
const framesOf = (found) => found.frames.map((index) => found.refs[index]);

// The whole text of an element or of the page.
function read(options) {
  const element = rootOf(options.ref);
  if (element === null) return { gone: true };
  const tag = localName(element);
  const value = valueOf(element, tag, roleOf(element, tag));
  let text;
  if (value !== undefined && tag !== 'progress' && tag !== 'meter') text = value;
  else if (element instanceof HTMLElement && !hasShadow(element)) text = innerText(element === documentElement(document) ? (element.querySelector(':scope > body') ?? element) : element);
  else text = outline(element, { withoutRefs: true }).texts.join('\n');
  text = visible(text).replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, ' ').replace(/[ \t\u00a0]+/g, ' ').replace(/\n{3,}/g, '\n\n').toWellFormed().trim();
  const attributes = {};
  if (options.attributes) {
    for (const name of options.attributes.slice(0, 20)) {
      let found = getAttribute(element, name);
      if (name.toLowerCase() === 'value' && isSecret(element)) found = '(hidden)';
      attributes[name] = found === null ? null : clean(found, 1000);
    }
  }
  return { text: text.slice(options.from, options.from + options.limit).toWellFormed(), length: text.length, attributes };
}
function hasShadow(element) {
  const walker = createTreeWalker(document, element, NodeFilter.SHOW_ELEMENT);
  for (let node = element, count = 0; node !== null && count < 20000; node = walker.nextNode(), count++) if (shadowOf(node) !== null) return true;
  return false;
}

function similar(options) {
  next = Math.max(next, options.next);
  const found = outline(rootOf(-1), {});
  const wanted = options.text.toLowerCase();
  const lines = [];
  for (let i = 0; i < found.texts.length && lines.length < 9; i++) {
    if (found.refs[i] !== -1 && found.kinds[i] === 1 && found.texts[i].toLowerCase() === wanted) lines.push(0, found.refs[i], found.texts[i]);
  }
  return { lines, next };
}
