// The outline of a page: the lines of a snapshot.

// Line i of the outline is `depths[i]`, `refs[i]`, `texts[i]` and `kinds[i]`: kind 0 is text of the page, 1 is an element.
function outline(root, options) {
  const depths = [], refs = [], texts = [], kinds = [];
  const deadline = performance.now() + (options.ms ?? 5000);
  const numberOf = options.withoutRefs ? () => -1 : refOf;
  const focused = deepActive();  // shown even if it is hidden from assistive technology
  let text = '', textOwner = null, visited = 0, cut = false;
  const frames = [];
  const emit = (depth, ref, line, kind) => { depths.push(Math.min(depth, MAX_DEPTH)); refs.push(ref); texts.push(line); kinds.push(kind); };
  const flush = (depth) => {
    if (text === '') return;
    const line = clean(text, TEXT);
    if (line !== '') emit(depth, options.refText || line.includes('… (+') ? numberOf(textOwner) : -1, line, 0);
    text = ''; textOwner = null;
  };
  const drop = (from) => { depths.length = refs.length = texts.length = kinds.length = from; };
  const onlyText = (from) => { for (let i = from; i < kinds.length; i++) if (kinds[i] !== 0) return false; return true; };
  const joined = (from, separator) => {
    let all = '';
    for (let i = from; i < texts.length && all.length < TEXT * 4; i++) if (texts[i] !== '') all += (all ? separator : '') + texts[i];
    return all;
  };
  const stack = [];
  const enter = (element, depth, state) => stack.push({ element, depth, child: undefined, list: null, index: 0, ...state });
  enter(root, 0, { root: true, hidden: false, faint: false, label: false, pointer: false, start: 0, role: '' });

  while (stack.length) {
    const frame = stack[stack.length - 1];
    // The next child, in the order in which it is shown.
    let child;
    if (frame.child === undefined) {
      const element = frame.element;
      const shadow = nodeType(element) === 1 ? shadowOf(element) : null;
      if (shadow !== null) child = firstChild(shadow);
      else if (nodeType(element) === 1 && localName(element) === 'slot' && element.assignedNodes().length) { frame.list = element.assignedNodes(); child = frame.list[0]; frame.index = 1; }
      else child = firstChild(element);
    } else if (frame.list !== null) child = frame.index < frame.list.length ? frame.list[frame.index++] : null;
    else child = nextSibling(frame.child);
    if (child === null || child === undefined || frame.skipChildren) { stack.pop(); leave(frame); continue; }
    frame.child = child;
    if (frame.tag === 'details' && !frame.element.open && !(nodeType(child) === 1 && localName(child) === 'summary')) continue;
    const type = nodeType(child);
    if (type === 3) {
      if (!frame.hidden && !frame.faint && !frame.label && frame.style?.fontSize !== '0px') {
        if (text.length < TEXT * 8) {
          const data = child.data;
          if (data.length > TEXT * 8 ? true : /\S/.test(data)) { if (textOwner === null) textOwner = frame.element; text += data; }
          else if (text !== '') text += ' ';
        } else text += ' ';
      }
      continue;
    }
    if (type !== 1) continue;
    if (++visited > MAX_NODES || texts.length > MAX_LINES || (visited % 256 === 0 && performance.now() > deadline)) { cut = true; break; }
    visit(child, frame);
  }
  flush(0);
  return { depths, refs, texts, kinds, frames, visited, cut };

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
      if (name === '') { enter(element, parent.depth, base); return; }  // a drawing with texts and links in it
      flush(parent.depth);
      emit(parent.depth, options.refText ? numberOf(element) : -1, parent.nameless ? name : `img ${name}`, parent.nameless ? 0 : 1);
      if (!isHtml) enter(element, parent.depth + 1, base);
      return;
    }
    if ((role === 'listitem' || role === 'row' || role === 'cell' || role === 'columnheader' || role === 'gridcell' || role === 'rowheader' || role === 'heading') || role === '') {
      flush(parent.depth);
      base.start = texts.length;
      const ref = hasAttribute(element, 'onclick') || (hasAttribute(element, 'tabindex') && element.tabIndex >= 0) || (pointer && !parent.pointer) || options.refAll ? numberOf(element) : -1;
      if (role !== '') emit(parent.depth, ref, '', 1);
      enter(element, parent.depth + (role === '' ? 0 : 1), { ...base, role, name, ref, label: false, states: role === '' ? [] : statesOf(element, tag, role) });
      return;
    }
    if (CONTAINERS.has(role) && !ACTIVE.has(role) && !(isField)) {
      flush(parent.depth);
      base.start = texts.length;
      const states = statesOf(element, tag, role);
      emit(parent.depth, numberOf(element), line(role, states, name), 1);
      enter(element, parent.depth + 1, { ...base, role, container: true, name, named: name !== '' });
      return;
    }
    if (role === 'frame') {
      flush(parent.depth);
      frames.push(texts.length);
      emit(parent.depth, refOf(element), line('frame', [], name), 1);
      return;
    }
    if (!ACTIVE.has(role) && !isField) {  // a role that only groups or describes
      flush(parent.depth);
      base.start = texts.length;
      const value = valueOf(element, tag, role);
      if (name !== '' || value !== undefined) emit(parent.depth, options.refAll ? numberOf(element) : -1, line(role, [], name) + (value === undefined ? '' : ` = ${clean(value, NAME)}`), 1);
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
      emit(parent.depth, numberOf(element), written, 1);
      return;
    }
    emit(parent.depth, numberOf(element), '', 1);
    enter(element, parent.depth + 1, { ...base, role, name, states, value, active: true, nameless: name === '', label: false });
  }

  function line(role, states, name) {
    return (states.length ? `${role}(${states.join(' ')})` : role) + (name === '' ? '' : ` ${name}`);
  }

  function leave(frame) {
    if (frame.root) return;
    if (frame.isBlock || frame.role !== '') flush(frame.depth);
    const { role, start } = frame;
    if (role === '' || frame.container) {
      if (frame.container && texts.length === start + 1 && frame.name === '' && (role === 'list' || role === 'group' || role === 'article' || role === 'status' || role === 'alert')) drop(start);
      return;
    }
    const level = role === 'heading' ? 'h' + (getAttribute(frame.element, 'aria-level') ?? (/^h[1-6]$/.test(frame.tag) ? frame.tag[1] : '2')).slice(0, 2) : role;
    const words = { listitem: 'item', heading: level }[role] ?? role;
    const own = start + 1;
    const plain = onlyText(own);
    switch (role) {
      case 'cell': case 'gridcell': case 'columnheader': case 'rowheader':
        if (plain) {
          const content = frame.name || joined(own, ' ');
          drop(start);
          emit(frame.depth - 1, frame.ref, clean(content, TEXT), frame.ref === -1 ? 0 : 1);
          if (frame.ref !== -1) texts[start] = line(role, frame.states, clean(content, TEXT));
          else kinds[start] = 0;
        } else if (frame.depth > MAX_DEPTH) texts[start] = role;
        else { depths.splice(start, 1); refs.splice(start, 1); texts.splice(start, 1); kinds.splice(start, 1); for (let i = start; i < depths.length; i++) depths[i] = Math.max(0, depths[i] - 1); }
        return;
      case 'row':
        if (plain) {
          const cells = texts.slice(own, own + 60).join(' | ');
          const more = texts.length - own - 60;
          drop(start);
          emit(frame.depth - 1, frame.ref, line('row', frame.states, clean(cells, TEXT) + (more > 0 ? ` | +${more}` : '')), 1);
        } else texts[start] = line('row', frame.states, frame.name);
        return;
      case 'listitem':
        if (plain) {
          const content = joined(own, ' ');
          const owner = frame.ref !== -1 ? frame.ref : options.refText && content !== '' ? numberOf(frame.element) : -1;
          drop(start);
          if (content !== '') emit(frame.depth - 1, owner, clean(content, TEXT), 0);
        } else texts[start] = line(words, frame.states, frame.name);
        return;
      case 'heading':
        if (plain) {
          const content = frame.name || joined(own, ' ');
          drop(start);
          if (content !== '') emit(frame.depth - 1, options.refText ? numberOf(frame.element) : frame.ref, line(words, frame.states, clean(content, TEXT)), 1);
        } else texts[start] = line(words, frame.states, frame.name);
        return;
    }
    // An element that acts: its name is its content, unless the author gave it one.
    let name = frame.name;
    if (plain) {
      const content = name || joined(own, ' ') || getAttribute(frame.element, 'title') || (frame.element.placeholder ?? '');
      drop(own);
      name = clean(String(content), NAME);
      if (role === 'clickable' && name === '' && !options.refAll && clientRects(frame.element).length === 0) { drop(start); return; }
    } else if (name !== '' && frame.depth < MAX_DEPTH) {  // keep only the elements in it; deeper, that would take quadratic time
      for (let i = own, to = own; i < texts.length; i++) {
        if (kinds[i] === 0) { if (i === texts.length - 1) { depths.length = refs.length = texts.length = kinds.length = to; } continue; }
        depths[to] = depths[i]; refs[to] = refs[i]; texts[to] = texts[i]; kinds[to] = kinds[i]; to++;
        if (i === texts.length - 1) { depths.length = refs.length = texts.length = kinds.length = to; break; }
      }
    }
    texts[start] = line(role, frame.states, name) + (frame.value !== undefined && frame.value !== '' && frame.value !== name ? ` = ${clean(frame.value, NAME)}` : '');
  }
}
