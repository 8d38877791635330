// Visible texts whose contrast is below WCAG 2.2 AA: ratio, element, words.
() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const colour = (text) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = ([r, g, b]) => { const [x, y, z] = [r, g, b].map((v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * x + 0.7152 * y + 0.0722 * z; };
  const over = (top, under) => top.slice(0, 3).map((v, i) => v * top[3] / 255 + under[i] * (1 - top[3] / 255));
  const bad = [];
  for (const node of document.querySelectorAll('body *')) {
    const words = [...node.childNodes].filter((c) => c.nodeType === 3 && c.data.trim()).map((c) => c.data.trim()).join(' ');
    if (!words || !node.getClientRects().length || node.closest('script, style, .vh, .vega-embed summary')) continue;
    const style = getComputedStyle(node), svg = node instanceof SVGElement;
    const grounds = [];
    for (let at = node; at; at = at.parentElement) {
      const rect = svg && at.matches('.node') ? at.querySelector('rect') : null;
      grounds.push(colour(rect ? getComputedStyle(rect).fill : getComputedStyle(at).backgroundColor));
    }
    let ground = [255, 255, 255];
    for (const one of grounds.reverse()) ground = over(one, ground);
    const ink = over(colour(svg ? style.fill : style.color), ground);
    const [a, b] = [light(ink), light(ground)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05), size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) bad.push(`${ratio.toFixed(2)} ${node.tagName}.${node.getAttribute('class')}: ${words.slice(0, 40)}`);
  }
  return bad;
}
