// The functions that Python calls. This is the last part of the script: the parts before it define these functions.

Object.defineProperty(globalThis, 'stage', {
  value: Object.freeze({
    walk, find, read, locate, frameOffset, bringIntoView, arm, armFrame, disarm, field, focusField, focusedRef, setField, choose, shownValue, facts, hasText,
    ready, settle, box, similar, element: nodeOf, refFor: (node, from) => { next = Math.max(next, from); return [refOf(node), next]; },
    addClosedRoot: (root) => { closedRoots.set(root.host, root); },
    countNodes,
  }),
});
