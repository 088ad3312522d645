// Elements, numbers in words, and tables. Text of the database reaches the page as text of elements
// and in attributes alone, so no text is ever taken for markup.

const SVG = 'http://www.w3.org/2000/svg';

function made(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === 'function') element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  element.append(...children.flat(2).filter((c) => c !== null && c !== undefined && c !== false));
  return element;
}

export const el = (tag, attributes, ...children) =>
  made(document.createElement(tag), attributes, children);

export const svg = (tag, attributes, ...children) =>
  made(document.createElementNS(SVG, tag), attributes, children);

// A table of the interface as objects by the names of its columns.
export function objects(table) {
  if (!table) return [];
  return table.rows.map((row) => Object.fromEntries(table.columns.map((c, i) => [c, row[i]])));
}

export function number(value, decimals = 0) {
  if (value === null || value === undefined || value === '') return '';
  const n = Number(value);
  if (!Number.isFinite(n)) return String(value);
  return n.toLocaleString('en-US', {
    minimumFractionDigits: decimals, maximumFractionDigits: decimals,
  });
}

// Microseconds in the unit that a person reads.
export function micros(value) {
  if (value === null || value === undefined) return '';
  const us = Number(value);
  if (us >= 3.6e9) return `${number(us / 3.6e9, 1)} h`;
  if (us >= 1e6) return `${number(us / 1e6, us >= 1e8 ? 0 : 2)} s`;
  if (us >= 1e3) return `${number(us / 1e3, us >= 1e5 ? 0 : 2)} ms`;
  return `${number(us)} µs`;
}

export function age(seconds) {
  if (seconds === null || seconds === undefined) return '';
  const s = Math.max(0, Math.round(Number(seconds)));
  if (s >= 172800) return `${Math.floor(s / 86400)} days`;
  if (s >= 7200) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  if (s >= 120) return `${Math.floor(s / 60)} min ${s % 60} s`;
  return `${s} s`;
}

export const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString('en-GB');

export function bytes(value) {
  let n = Number(value);
  for (const unit of ['B', 'KiB', 'MiB', 'GiB']) {
    if (n < 1024) return `${number(n, unit === 'B' ? 0 : 1)} ${unit}`;
    n /= 1024;
  }
  return `${number(n, 1)} TiB`;
}

export const sum = (list, of) => list.reduce((all, one) => all + Number(of(one) || 0), 0);

// Groups a list by a key, in the order in which keys come first.
export function grouped(list, key) {
  const groups = new Map();
  for (const one of list) {
    const of = key(one);
    if (!groups.has(of)) groups.set(of, []);
    groups.get(of).push(one);
  }
  return groups;
}

// How tables are sorted and filtered, which outlives a refresh.
const views = new Map();

export const forgetTables = () => views.clear();

// A table that is sorted by its heads and filtered by a text.
// columns: {title, value(row), show(row), left, text, code, sort: 'down'}.
export function table(name, columns, rows, options = {}) {
  const view = views.get(name) || { by: null, down: true, filter: '' };
  views.set(name, view);
  const holder = el('div', { class: 'scroll stack', tabindex: '0', role: 'region',
    'aria-label': options.label || name });
  const count = el('span', { class: 'faint' });
  const shownOf = (column, row) => {
    const shown = column.show ? column.show(row) : column.value(row);
    return shown === null || shown === undefined ? '' : shown;
  };
  const plain = (column, row) => {
    const value = column.value(row);
    return value === null || value === undefined ? '' : value;
  };
  const compare = (a, b) => {
    if (a === b) return 0;
    if (a === '' || a === null) return -1;
    if (b === '' || b === null) return 1;
    if (typeof a === 'number' && typeof b === 'number') return a - b;
    return String(a).localeCompare(String(b), 'en', { numeric: true });
  };
  const draw = () => {
    const words = view.filter.toLowerCase();
    let kept = words
      ? rows.filter((row) => columns.some((c) =>
        String(plain(c, row)).toLowerCase().includes(words)))
      : rows.slice();
    const by = columns[view.by];
    if (by) kept.sort((a, b) => compare(plain(by, a), plain(by, b)) * (view.down ? -1 : 1));
    const limit = options.limit || 200;
    count.textContent = kept.length > limit
      ? `${limit} of ${kept.length} rows` : `${kept.length} rows`;
    kept = kept.slice(0, limit);
    const head = columns.map((column, at) => el('th', {
      class: column.left || column.text ? 'left' : undefined, scope: 'col',
      'aria-sort': view.by === at ? (view.down ? 'descending' : 'ascending') : undefined,
    }, el('button', {
      type: 'button', 'data-focus': `${name}/${at}`,
      click: () => {
        view.down = view.by === at ? !view.down : !column.left && !column.text;
        view.by = at;
        draw();
        const again = holder.querySelector(`[data-focus="${CSS.escape(`${name}/${at}`)}"]`);
        if (again) again.focus();
      },
    }, column.title, view.by === at ? (view.down ? ' ▾' : ' ▴') : '')));
    const kind = (c) => [c.text ? 'text' : c.left ? 'left' : '', c.code ? 'code' : ''].join(' ');
    const body = kept.map((row) => el('tr', {}, columns.map((column) =>
      el('td', { class: kind(column), 'data-name': column.title }, shownOf(column, row)))));
    if (!body.length) {
      body.push(el('tr', {}, el('td', { class: 'left faint', colspan: columns.length },
        options.empty || 'Nothing.')));
    }
    holder.replaceChildren(el('table', {},
      el('thead', {}, el('tr', {}, head)), el('tbody', {}, body)));
  };
  draw();
  const filter = options.filter === false ? null : el('input', {
    type: 'search', placeholder: 'Filter', 'aria-label': `Filter ${options.label || name}`,
    'data-focus': `${name}/filter`, value: view.filter,
    input: (event) => { view.filter = event.target.value; draw(); },
  });
  return el('div', {}, options.filter === false ? null
    : el('div', { class: 'row' }, filter, count), holder);
}

export function section(title, reading, ...children) {
  return el('section', {}, el('h2', {}, title),
    reading ? el('p', { class: 'reading' }, reading) : null, ...children);
}

export function facts(pairs) {
  const told = pairs.filter(([name, value]) => name && value !== null && value !== undefined
    && value !== '');
  return el('dl', {}, told.map(([name, value]) => [el('dt', {}, name), el('dd', {}, value)]));
}
