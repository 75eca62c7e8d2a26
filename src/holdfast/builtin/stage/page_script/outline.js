// The outline of a page: the lines of a snapshot.

const PAGE_TEXT = 0, ELEMENT = 1;  // the kinds of lines

// Line i of the outline is `depths[i]`, `refs[i]` (-1 for none), `texts[i]` and `kinds[i]`. `frames` are the indexes of the lines of frames, `visited` is
// the number of elements that were read, and `cut` says whether elements were left out, because the page is too large or the time (`options.ms`) ran out.
// `options.withoutRefs`: give no refs. `options.refText`: give refs to texts, too. `options.refAll`: give refs to all elements.
function outline(root, options) {
  const depths = [], refs = [], texts = [], kinds = [];
  const deadline = performance.now() + (options.ms ?? 5000);
  const numberOf = options.withoutRefs ? () => -1 : refOf;
  const focused = deepActive();  // shown even if it is hidden from assistive technology
  let text = '', textOwner = null, visited = 0, cut = false;
  const frames = [];
  // Add a line.
  const emit = (depth, ref, line, kind) => { depths.push(Math.min(depth, MAX_DEPTH)); refs.push(ref); texts.push(line); kinds.push(kind); };
  // Add a line with the text that was collected since the last line.
  const flush = (depth) => {
    if (text === '') return;
    const line = clean(text, TEXT);
    if (line !== '') emit(depth, options.refText || line.includes('… (+') ? numberOf(textOwner) : -1, line, PAGE_TEXT);
    text = ''; textOwner = null;
  };
  // Remove the lines from index `from` on.
  const drop = (from) => { depths.length = refs.length = texts.length = kinds.length = from; };
  // Whether all lines from index `from` on are text of the page.
  const onlyText = (from) => { for (let i = from; i < kinds.length; i++) if (kinds[i] !== PAGE_TEXT) return false; return true; };
  // The lines from index `from` on as one text.
  const joined = (from, separator) => {
    let all = '';
    for (let i = from; i < texts.length && all.length < TEXT * 4; i++) if (texts[i] !== '') all += (all ? separator : '') + texts[i];
    return all;
  };
  // The elements whose children are being read, from outside to inside. A recursive function would overflow the stack on a deep page.
  const stack = [];
  const enter = (element, depth, state) => stack.push({ element, depth, child: undefined, list: null, index: 0, ...state });
  enter(root, 0, { root: true, hidden: false, faint: false, label: false, pointer: false, start: 0, role: '' });

  while (stack.length) {
    const entered = stack[stack.length - 1];
    // The next child, in the order in which it is shown.
    let child;
    if (entered.child === undefined) {
      const element = entered.element;
      const shadow = nodeType(element) === 1 ? shadowOf(element) : null;
      if (shadow !== null) child = firstChild(shadow);
      else if (nodeType(element) === 1 && localName(element) === 'slot' && element.assignedNodes().length) { entered.list = element.assignedNodes(); child = entered.list[0]; entered.index = 1; }
      else child = firstChild(element);
    } else if (entered.list !== null) child = entered.index < entered.list.length ? entered.list[entered.index++] : null;
    else child = nextSibling(entered.child);
    if (child === null || child === undefined) { stack.pop(); leave(entered); continue; }
    entered.child = child;
    if (entered.tag === 'details' && !entered.element.open && !(nodeType(child) === 1 && localName(child) === 'summary')) continue;
    const type = nodeType(child);
    if (type === 3) {
      if (!entered.hidden && !entered.faint && !entered.label && entered.style?.fontSize !== '0px') {
        if (text.length < TEXT * 8) {
          const data = child.data;
          if (data.length > TEXT * 8 ? true : /\S/.test(data)) { if (textOwner === null) textOwner = entered.element; text += data; }
          else if (text !== '') text += ' ';
        } else text += ' ';
      }
      continue;
    }
    if (type !== 1) continue;
    if (++visited > MAX_NODES || texts.length > MAX_LINES || (visited % 256 === 0 && performance.now() > deadline)) { cut = true; break; }
    visit(child, entered);
  }
  flush(0);
  return { depths, refs, texts, kinds, frames, visited, cut };

  // Add the lines of an element that come before those of its children, and enter it unless its children are not shown. `parent` is on the stack.
  function visit(element, parent) {
    const tag = localName(element);
    const isHtml = namespaceURI(element) === HTML;
    if ((isHtml ? SKIPPED : SVG_SKIPPED).has(tag)) return;
    const style = styleOf(element);
    const display = style.display;
    const isFile = isHtml && tag === 'input' && element.type === 'file';  // often hidden, with a label or a button in its place
    if (display === 'none' && !(isHtml && tag === 'area') && !isFile) return;
    if (isTrue(element, 'aria-hidden') && element !== focused) return;
    const hidden = style.visibility !== 'visible' && !isFile;
    const faint = parent.faint || style.opacity === '0';
    const isBlock = !(display === 'inline' || display === 'contents' || display === 'inline-block');
    if (isBlock || (isHtml && tag === 'br')) flush(parent.depth);
    if (style.contentVisibility === 'hidden') return;
    let role = roleOf(element, tag);
    const pointer = style.cursor === 'pointer';
    const editable = isHtml && role === '' && isContentEditable(element) && !(nodeType(parent.element) === 1 && parent.editable);
    if (editable) role = 'textbox';
    if (role === '' && !hidden && isHtml && tag !== 'label' && tag !== 'body' && tag !== 'html' &&
        ((pointer && !parent.pointer) || hasAttribute(element, 'onclick') || (hasAttribute(element, 'tabindex') && element.tabIndex >= 0))) role = 'clickable';
    const isLabel = isHtml && ((tag === 'label' && role === '' && isControlShown(element)) ||
      ((tag === 'legend' || tag === 'caption' || tag === 'figcaption') && parent.named));  // its text is shown as a name already
    const base = { hidden, faint, label: parent.label || isLabel, pointer, editable: editable || parent.editable || (isHtml && hasAttribute(element, 'contenteditable') && isContentEditable(element)), isBlock, start: texts.length, role: '', tag, style };
    if (hidden && role !== '') role = '';
    if (role === '' || (faint && !ACTIVE.has(role)) || (role === 'img' && isHtml && getAttribute(element, 'alt') === '')) {
      enter(element, parent.depth, base);
      return;
    }
    if (role === 'clickable' && parent.label) role = '';
    const isField = isHtml && (tag === 'input' || tag === 'select' || tag === 'textarea');
    const name = clean(givenName(element, tag, role), NAME);
    if (role === 'img' || role === 'separator') {
      if (role === 'separator' || (name === '' && isHtml)) return;
      if (name === '') { enter(element, parent.depth, base); return; }  // an SVG image with texts and links in it
      flush(parent.depth);
      emit(parent.depth, options.refText ? numberOf(element) : -1, parent.nameless ? name : `img ${name}`, parent.nameless ? PAGE_TEXT : ELEMENT);
      if (!isHtml) enter(element, parent.depth + 1, base);
      return;
    }
    if ((role === 'listitem' || role === 'row' || role === 'cell' || role === 'columnheader' || role === 'gridcell' || role === 'rowheader' || role === 'heading') || role === '') {
      flush(parent.depth);
      base.start = texts.length;
      const ref = hasAttribute(element, 'onclick') || (hasAttribute(element, 'tabindex') && element.tabIndex >= 0) || (pointer && !parent.pointer) || options.refAll ? numberOf(element) : -1;
      if (role !== '') emit(parent.depth, ref, '', ELEMENT);
      enter(element, parent.depth + (role === '' ? 0 : 1), { ...base, role, name, ref, label: false, states: role === '' ? [] : statesOf(element, tag, role) });
      return;
    }
    if (CONTAINERS.has(role) && !ACTIVE.has(role) && !(isField)) {
      flush(parent.depth);
      base.start = texts.length;
      const states = statesOf(element, tag, role);
      emit(parent.depth, numberOf(element), line(role, states, name), ELEMENT);
      enter(element, parent.depth + 1, { ...base, role, container: true, name, named: name !== '' });
      return;
    }
    if (role === 'frame') {
      flush(parent.depth);
      frames.push(texts.length);
      emit(parent.depth, refOf(element), line('frame', [], name), ELEMENT);
      return;
    }
    if (!ACTIVE.has(role) && !isField) {  // a role that only groups or describes
      flush(parent.depth);
      base.start = texts.length;
      const value = valueOf(element, tag, role);
      if (name !== '' || value !== undefined) emit(parent.depth, options.refAll ? numberOf(element) : -1, line(role, [], name) + (value === undefined ? '' : ` = ${clean(value, NAME)}`), ELEMENT);
      enter(element, parent.depth + (name !== '' || value !== undefined ? 1 : 0), base);
      return;
    }
    flush(parent.depth);
    base.start = texts.length;
    const states = statesOf(element, tag, role);
    const value = valueOf(element, tag, role);
    const isLeaf = isField || editable || role === 'canvas' || role === 'video' || role === 'audio';
    if (isLeaf) {
      let written = line(role, states, name);
      if (value !== undefined && value !== '') written += ` = ${clean(value, NAME)}`;
      if (isHtml && tag === 'select') written += optionsOf(element);
      emit(parent.depth, numberOf(element), written, ELEMENT);
      return;
    }
    emit(parent.depth, numberOf(element), '', ELEMENT);
    enter(element, parent.depth + 1, { ...base, role, name, states, value, active: true, nameless: name === '', label: false });
  }

  // The text of an element's line, such as `button(disabled) Save`.
  function line(role, states, name) {
    return (states.length ? `${role}(${states.join(' ')})` : role) + (name === '' ? '' : ` ${name}`);
  }

  // All children of an element were read: complete its line. An element that contains only text becomes one line with this text.
  function leave(entered) {
    if (entered.root) return;
    if (entered.isBlock || entered.role !== '') flush(entered.depth);
    const { role, start } = entered;
    if (role === '' || entered.container) {
      if (entered.container && texts.length === start + 1 && entered.name === '' && (role === 'list' || role === 'group' || role === 'article' || role === 'status' || role === 'alert')) drop(start);
      return;
    }
    const level = role === 'heading' ? 'h' + (getAttribute(entered.element, 'aria-level') ?? (/^h[1-6]$/.test(entered.tag) ? entered.tag[1] : '2')).slice(0, 2) : role;
    const words = { listitem: 'item', heading: level }[role] ?? role;
    const own = start + 1;
    const plain = onlyText(own);
    switch (role) {
      case 'cell': case 'gridcell': case 'columnheader': case 'rowheader':
        if (plain) {
          const content = entered.name || joined(own, ' ');
          drop(start);
          emit(entered.depth - 1, entered.ref, clean(content, TEXT), entered.ref === -1 ? PAGE_TEXT : ELEMENT);
          if (entered.ref !== -1) texts[start] = line(role, entered.states, clean(content, TEXT));
          else kinds[start] = PAGE_TEXT;
        } else if (entered.depth > MAX_DEPTH) texts[start] = role;
        else { depths.splice(start, 1); refs.splice(start, 1); texts.splice(start, 1); kinds.splice(start, 1); for (let i = start; i < depths.length; i++) depths[i] = Math.max(0, depths[i] - 1); }
        return;
      case 'row':
        if (plain) {
          const cells = texts.slice(own, own + 60).join(' | ');
          const more = texts.length - own - 60;
          drop(start);
          emit(entered.depth - 1, entered.ref, line('row', entered.states, clean(cells, TEXT) + (more > 0 ? ` | +${more}` : '')), ELEMENT);
        } else texts[start] = line('row', entered.states, entered.name);
        return;
      case 'listitem':
        if (plain) {
          const content = joined(own, ' ');
          const owner = entered.ref !== -1 ? entered.ref : options.refText && content !== '' ? numberOf(entered.element) : -1;
          drop(start);
          if (content !== '') emit(entered.depth - 1, owner, clean(content, TEXT), PAGE_TEXT);
        } else texts[start] = line(words, entered.states, entered.name);
        return;
      case 'heading':
        if (plain) {
          const content = entered.name || joined(own, ' ');
          drop(start);
          if (content !== '') emit(entered.depth - 1, options.refText ? numberOf(entered.element) : entered.ref, line(words, entered.states, clean(content, TEXT)), ELEMENT);
        } else texts[start] = line(words, entered.states, entered.name);
        return;
    }
    // An element that acts: its name is its content, unless the author gave it one.
    let name = entered.name;
    if (plain) {
      const content = name || joined(own, ' ') || getAttribute(entered.element, 'title') || (entered.element.placeholder ?? '');
      drop(own);
      name = clean(String(content), NAME);
      if (role === 'clickable' && name === '' && !options.refAll && clientRects(entered.element).length === 0) { drop(start); return; }
    } else if (name !== '' && entered.depth < MAX_DEPTH) {  // keep only the elements in it, unless it is so deep in the page that this would take quadratic time
      for (let i = own, to = own; i < texts.length; i++) {
        if (kinds[i] === PAGE_TEXT) { if (i === texts.length - 1) { depths.length = refs.length = texts.length = kinds.length = to; } continue; }
        depths[to] = depths[i]; refs[to] = refs[i]; texts[to] = texts[i]; kinds[to] = kinds[i]; to++;
        if (i === texts.length - 1) { depths.length = refs.length = texts.length = kinds.length = to; break; }
      }
    }
    texts[start] = line(role, entered.states, name) + (entered.value !== undefined && entered.value !== '' && entered.value !== name ? ` = ${clean(entered.value, NAME)}` : '');
  }
}
