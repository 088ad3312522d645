// What several pages have: links, activity over time, a table as it comes.

import { el, grouped, number, objects, sum, table } from './dom.js';
import { inOrder, key, stacked } from './chart.js';

const STEP = 5;
export const link = (to, text) => el('a', { href: `#/${to}`, 'data-focus': to }, text);
export const toStatement = (id) => link(`statement?sql_id=${encodeURIComponent(id)}`, id);
export const toSession = (instance, sid) =>
  link(`session?instance=${instance}&sid=${sid}`, `${instance}:${sid}`);

// Active sessions on average, by class and step, of one instance or of all.
export function activity(rows, width, label, options = {}) {
  const known = rows.filter((row) => row.at !== null);
  const times = [...new Set(known.map((row) => row.at))].sort((a, b) => a - b);
  // An instance that did not run in a step has no samples there; between two steps none is lost.
  const all = [];
  if (times.length) {
    const [from, to] = [times[0], times[times.length - 1]];
    for (let at = from; at <= to; at += options.step || STEP) all.push(at);
  }
  const place = new Map(all.map((at, i) => [at, i]));
  const names = inOrder(new Set(known.filter((r) => r.sessions > 0).map((r) => r.wait_class)));
  const layers = names.map((name) => ({ name, values: all.map(() => 0) }));
  const of = new Map(layers.map((layer) => [layer.name, layer]));
  const samplings = new Map();
  for (const row of known) {
    const own = `${row.inst_id}/${row.at}`;
    samplings.set(own, Math.max(samplings.get(own) || 0, row.samplings));
  }
  for (const row of known) {
    const layer = of.get(row.wait_class);
    const at = place.get(row.at);
    if (layer && at !== undefined) {
      layer.values[at] += row.sessions / Math.max(1, samplings.get(`${row.inst_id}/${row.at}`));
    }
  }
  if (!all.length) return el('p', { class: 'faint' }, 'No session was seen.');
  return stacked(label, all, layers, { width, ...options });
}

// Rows of one place added up by class: [[class, seconds], ..].
export function byClass(rows, of = (row) => row.seconds) {
  const groups = grouped(rows, (row) => row.wait_class);
  return inOrder(groups.keys()).map((name) => [name, sum(groups.get(name), of)]);
}

export const classColumn = {
  title: 'Class', left: true, value: (r) => r.wait_class, show: (r) => key(r.wait_class),
};

export function state(status) {
  const isGood = status === 'OPEN';
  return el('span', { class: isGood ? 'good' : 'bad' }, isGood ? '● ' : '▲ ', status);
}

// A table as the interface gives it.
export function plain(name, given, options = {}) {
  const columns = (given ? given.columns : []).map((column) => ({
    title: column.replaceAll('_', ' '), left: true, value: (row) => row[column],
    show: (row) => (typeof row[column] === 'number' ? number(row[column]) : row[column]),
  }));
  return table(name, columns, objects(given), { label: name, ...options });
}
