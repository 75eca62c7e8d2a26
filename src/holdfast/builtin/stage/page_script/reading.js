// The functions for the tools that read a page.

// The element with a ref number; without a number, the whole document.
function rootOf(number) {
  if (number === undefined || number === null || number < 0) return documentElement(document) ?? document;
  return nodeOf(number);
}

// How many elements the outline leaves out, because the page is too large or the time ran out.
const unread = (outlined) => outlined.cut ? Math.max(1, elementsByTag(document, '*').length - outlined.visited) : 0;

// The lines of a snapshot, each as three members of a flat list: depth, ref number, text.
function walk(options) {
  next = options.next;
  const root = rootOf(options.within);
  if (root === null) return { gone: true, next };
  const outlined = outline(root, options);
  const lines = [];
  for (let i = 0; i < outlined.texts.length; i++) {
    const prefix = outlined.kinds[i] === PAGE_TEXT ? '- ' : '';
    lines.push(outlined.depths[i], outlined.refs[i], prefix + outlined.texts[i]);
  }
  return { lines, next, frames: outlined.frames.map((index) => [index, outlined.refs[index]]), ...ready(), cut: unread(outlined) };
}

// The text of line i without the role and the states, which the page does not show.
const wordsOf = (outlined, i) => outlined.kinds[i] === PAGE_TEXT ? outlined.texts[i] : outlined.texts[i].replace(/^[a-z0-9]+(\([a-z ]*\))?/, '');

// The lines that contain a text and have one of the roles, each with a ref.
function find(options) {
  next = options.next;
  const root = rootOf(options.within);
  if (root === null) return { gone: true, next };
  const outlined = outline(root, { refText: true, refAll: true, ms: options.ms });
  const wanted = (options.text ?? '').toLowerCase();
  const lines = [];
  const above = [];  // the lines around line i, from outside to inside
  for (let i = 0; i < outlined.texts.length; i++) {
    while (above.length && outlined.depths[above[above.length - 1]] >= outlined.depths[i]) above.pop();
    const around = above.length ? above[above.length - 1] : -1;
    above.push(i);
    const line = outlined.texts[i];
    const role = outlined.kinds[i] === PAGE_TEXT ? 'text' : /^[a-z0-9]+/.exec(line)?.[0] ?? '';
    if (options.roles && !options.roles.includes(role) && !(options.roles.includes('heading') && /^h\d$/.test(role))) continue;
    if (wanted !== '' && !wordsOf(outlined, i).toLowerCase().includes(wanted)) continue;
    const node = outlined.refs[i] === -1 ? null : nodeOf(outlined.refs[i]);
    // The buttons that belong to a text are in the same row or item.
    const place = ['text', 'cell', 'gridcell', 'rowheader'].includes(role) && around !== -1 && outlined.refs[around] !== -1 ? /^(row|item)\b/.exec(outlined.texts[around]) : null;
    let extra = place === null ? '' : ` (in ${place[1]} ${options.prefix}${outlined.refs[around]})`;
    if (options.details && node !== null && nodeType(node) === 1) {
      if (node instanceof HTMLAnchorElement) extra += ` -> ${clean(node.href, 300)}`;
      else if (node instanceof HTMLImageElement) extra += ` -> ${clean(node.currentSrc || node.src, 300)}`;
      const rect = boundingRect(node);
      extra += ` @${Math.round(rect.x)},${Math.round(rect.y)} ${Math.round(rect.width)}x${Math.round(rect.height)}`;
    }
    lines.push(0, outlined.refs[i], (outlined.kinds[i] === PAGE_TEXT ? '- ' : '') + line + extra);
  }
  if (outlined.cut && wanted !== '') findUnread(root, wanted, options, lines);
  return { lines, next, frames: framesOf(outlined), cut: unread(outlined) };
}
// Whether a text directly in this element would be in the outline.
const isTextShown = (element) => !['option', 'textarea'].includes(localName(element)) && checkVisibility(element, { visibilityProperty: true, opacityProperty: true }) &&
  closest(element, '[aria-hidden="true"]') === null && (namespaceURI(element) === HTML || closest(element, [...SVG_SKIPPED].join()) === null) && styleOf(element).fontSize !== '0px';
// The elements that show a text. For a page that is too large to be read as a whole: searching its texts takes much less time than reading it.
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
// Add the elements with a text that the outline does not contain.
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
// The ref numbers of the frames that are shown.
const framesOf = (outlined) => outlined.frames.map((index) => outlined.refs[index]);

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
// Whether an element has a shadow root in it, whose text `innerText` would leave out.
function hasShadow(element) {
  const walker = createTreeWalker(document, element, NodeFilter.SHOW_ELEMENT);
  for (let node = element, count = 0; node !== null && count < 20000; node = walker.nextNode(), count++) if (shadowOf(node) !== null) return true;
  return false;
}

// The lines that are the same as the line of an element that is gone.
function similar(options) {
  next = Math.max(next, options.next);
  const outlined = outline(rootOf(-1), {});
  const wanted = options.text.toLowerCase();
  const lines = [];
  for (let i = 0; i < outlined.texts.length && lines.length < 9; i++) {
    if (outlined.refs[i] !== -1 && outlined.kinds[i] === ELEMENT && outlined.texts[i].toLowerCase() === wanted) lines.push(0, outlined.refs[i], outlined.texts[i]);
  }
  return { lines, next };
}
