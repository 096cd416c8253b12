(() => {
  const parsed = (text) => { const c = document.createElement('canvas').getContext('2d');
    c.fillStyle = text; c.fillRect(0, 0, 1, 1); return [...c.getImageData(0, 0, 1, 1).data]; };
  const light = (text) => { const [r, g, b] = parsed(text).map((x) => x / 255).map((x) =>
    x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
    if (parsed(c)[3] === 255) return c; } return 'white'; };
  const kinds = KINDS;
  for (const kind of kinds) { const e = document.createElement('span'); e.className = 'cell ' + kind;
    e.textContent = 'x'; document.querySelector('#panel-body').append(e); }
  const wrong = [];
  for (const e of document.querySelectorAll('body *')) {
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || !e.checkVisibility()) continue;
    if (e.closest('.unseen, script, style, option')) continue;
    const [a, b] = [light(getComputedStyle(e).color), light(ground(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) wrong.push([e.tagName, e.className, e.textContent.slice(0, 30), ratio]);
  }
  return wrong; })()
