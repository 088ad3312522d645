// Charts: layers over time, bars of parts. Each has its figures as text as well: a legend with
// names, a readout that follows the pointer and the arrow keys.

import { clock, el, number, svg } from './dom.js';

// Classes of waits: colour (Okabe and Ito) and pattern, from the bottom of a stack to its top.
export const CLASSES = [
  ['CPU', '#009e73', 'plain'],
  ['Scheduler', '#7fd1b9', 'dots'],
  ['User I/O', '#0072b2', 'up'],
  ['System I/O', '#56b4e9', 'plain'],
  ['Cluster', '#e69f00', 'down'],
  ['Commit', '#f0e442', 'plain'],
  ['Concurrency', '#d55e00', 'cross'],
  ['Application', '#cc79a7', 'flat'],
  ['Configuration', '#8c6d31', 'dots'],
  ['Network', '#9aa5b1', 'up'],
  ['Other', '#5b6570', 'flat'],
  ['Idle', '#c5cbd3', 'plain'],
];

// Parts of a wait that another instance ended.
export const PARTS = [
  ['message out', '#56b4e9', 'plain'],
  ['queue', '#d55e00', 'cross'],
  ['in use', '#e69f00', 'down'],
  ['build', '#009e73', 'plain'],
  ['log flush', '#f0e442', 'up'],
  ['other', '#5b6570', 'flat'],
  ['message back', '#0072b2', 'plain'],
  ['wake up', '#cc79a7', 'dots'],
];

const known = new Map([...CLASSES, ...PARTS].map(([name, colour, pattern]) =>
  [name, [colour, pattern]]));
const REST = ['#5b6570', 'cross'];

const LINES = {
  up: 'M0 8L8 0M-2 2L2 -2M6 10L10 6',
  down: 'M0 0L8 8M-2 6L2 10M6 -2L10 2',
  cross: 'M0 0L8 8M8 0L0 8',
  flat: 'M0 2H8M0 6H8',
};

const identifier = (name) => `fill-${name.replace(/[^a-z]/gi, '')}`;

// The patterns, once for the page: fills refer to them.
export function patterns() {
  const all = [...known].map(([name, [colour, pattern]]) => {
    const mark = { stroke: '#000', 'stroke-opacity': '.38', 'stroke-width': '1.3', fill: 'none' };
    const lines = LINES[pattern] ? svg('path', { d: LINES[pattern], ...mark }) : null;
    const dots = pattern === 'dots'
      ? svg('circle', { cx: 3, cy: 3, r: 1.3, 'fill-opacity': '.45' }) : null;
    return svg('pattern', {
      id: identifier(name), width: 8, height: 8, patternUnits: 'userSpaceOnUse',
    }, svg('rect', { width: 8, height: 8, fill: colour }), lines, dots);
  });
  return svg('svg', { width: 0, height: 0, 'aria-hidden': 'true', id: 'patterns' },
    svg('defs', {}, all));
}

export const fill = (name) => (known.has(name) ? `url(#${identifier(name)})` : REST[0]);

export const key = (name) => el('span', { class: 'key' },
  svg('svg', { viewBox: '0 0 14 14', 'aria-hidden': 'true' },
    svg('rect', { width: 14, height: 14, rx: 2, fill: fill(name) })), name);

const order = new Map([...CLASSES, ...PARTS].map(([name], at) => [name, at]));
export const inOrder = (names) =>
  [...names].sort((a, b) => (order.get(a) ?? 99) - (order.get(b) ?? 99));

// A number that is a round one and not below the value.
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1e-9)));
  const factor = [1, 2, 2.5, 5, 10].find((f) => f * power >= value - 1e-12) || 10;
  return factor * power;
}

// Layers over time. times: seconds from 1970, in order; layers: {name, values}.
export function stacked(label, times, layers, options = {}) {
  const width = Math.max(300, options.width || 900);
  const height = options.height || 230;
  const [left, right, top, bottom] = [44, 10, 12, 22];
  const used = layers.filter((layer) => layer.values.some((v) => v > 0));
  const totals = times.map((_, at) => used.reduce((all, layer) => all + layer.values[at], 0));
  const most = roundUp(Math.max(0.1, options.limit || 0, ...totals));
  const [begin, end] = [times[0] ?? 0, times[times.length - 1] ?? 1];
  const x = (at) => left + ((width - left - right) * (at - begin)) / Math.max(1, end - begin);
  const y = (value) => height - bottom - ((height - top - bottom) * value) / most;
  const picture = svg('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img',
    'aria-label': label });
  const decimals = [0, 1].find((d) => Math.abs((most / 4) * 10 ** d % 1) < 1e-9) ?? 2;
  for (let step = 0; step <= 4; step += 1) {
    const value = (most * step) / 4;
    picture.append(
      svg('line', { class: 'axis', x1: left, x2: width - right, y1: y(value), y2: y(value) }),
      svg('text', { x: left - 6, y: y(value) + 4, 'text-anchor': 'end' },
        number(value, decimals)),
    );
  }
  const marks = Math.max(1, Math.floor(width / 160));
  for (let step = 0; step <= marks; step += 1) {
    const at = begin + ((end - begin) * step) / marks;
    picture.append(svg('text', {
      x: x(at), y: height - 6,
      'text-anchor': step === 0 ? 'start' : step === marks ? 'end' : 'middle',
    }, clock(at)));
  }
  let floor = times.map(() => 0);
  for (const layer of used) {
    const ceiling = floor.map((value, at) => value + layer.values[at]);
    const upper = times.map((t, at) => `${x(t).toFixed(1)},${y(ceiling[at]).toFixed(1)}`);
    const lower = times.map((t, at) => `${x(t).toFixed(1)},${y(floor[at]).toFixed(1)}`);
    picture.append(svg('polygon', { class: 'layer', fill: fill(layer.name),
      points: [...upper, ...lower.reverse()].join(' ') }, svg('title', {}, layer.name)));
    floor = ceiling;
  }
  if (options.limit) {
    picture.append(svg('line', { class: 'limit', x1: left, x2: width - right,
      y1: y(options.limit), y2: y(options.limit) }),
    svg('text', { x: width - right, y: y(options.limit) - 4, 'text-anchor': 'end' },
      `${options.limit} processors`));
  }
  const readout = el('div', { class: 'readout', 'aria-live': 'polite' },
    'Point at a moment, or focus the chart and use the arrow keys.');
  const cursor = svg('line', { class: 'cursor', y1: top, y2: height - bottom,
    visibility: 'hidden' });
  picture.append(cursor);
  let place = times.length - 1;
  const show = (at) => {
    place = Math.min(times.length - 1, Math.max(0, at));
    if (!times.length) return;
    const of = used.filter((layer) => layer.values[place] > 0)
      .map((layer) => `${layer.name} ${number(layer.values[place], 2)}`);
    cursor.setAttribute('x1', x(times[place]));
    cursor.setAttribute('x2', x(times[place]));
    cursor.setAttribute('visibility', 'visible');
    readout.textContent = `${clock(times[place])}: ${number(totals[place], 2)} in all`
      + (of.length ? `; ${of.reverse().join(', ')}` : '');
  };
  const holder = el('div', {
    class: 'chart', tabindex: '0', role: 'group', 'aria-label': label,
    'data-focus': options.focus || label,
    keydown: (event) => {
      const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9 }[event.key];
      if (steps === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      show(place + steps);
    },
    pointermove: (event) => {
      const box = picture.getBoundingClientRect();
      const at = begin + ((((event.clientX - box.left) / box.width) * width - left)
        / (width - left - right)) * (end - begin);
      let nearest = 0;
      times.forEach((t, i) => {
        if (Math.abs(t - at) < Math.abs(times[nearest] - at)) nearest = i;
      });
      show(nearest);
    },
  }, picture, readout, el('ul', { class: 'legend' },
    used.slice().reverse().map((layer) => el('li', {}, key(layer.name)))));
  return holder;
}

// One bar of parts: [[name, value], ..].
export function bar(parts, most, label) {
  const whole = most || parts.reduce((all, [, value]) => all + value, 0) || 1;
  const told = label || parts.map(([n, v]) => `${n} ${number(v, 1)}`).join(', ');
  const picture = svg('svg', { class: 'bar', role: 'img', 'aria-label': told });
  let at = 0;
  for (const [name, value] of parts) {
    const wide = (100 * value) / whole;
    if (wide > 0) {
      picture.append(svg('rect', {
        x: `${at}%`, width: `${wide}%`, height: 12, fill: fill(name),
      },
        svg('title', {}, name)));
    }
    at += wide;
  }
  return picture;
}

export const legend = (names) =>
  el('ul', { class: 'legend' }, names.map((name) => el('li', {}, key(name))));
