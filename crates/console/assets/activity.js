// Instances, active sessions, transfers between instances.

import {
  age, el, facts, grouped, micros, number, objects, section, sum, table,
} from './dom.js';
import { PARTS, bar, legend } from './chart.js';
import {
  activity, byClass, classColumn, link, state, toSession, toStatement,
} from './parts.js';

export function overview(data, { width }) {
  const { instances, sessions, metrics, activity: steps } = data.tables;
  const counted = grouped(objects(sessions), (row) => row.inst_id);
  const measured = grouped(objects(metrics), (row) => row.inst_id);
  const rows = objects(steps);
  const cards = objects(instances).map((one) => {
    const own = counted.get(one.inst_id) || [];
    const users = own.filter((row) => row.type === 'USER');
    const count = (status) => sum(users.filter((row) => row.status === status),
      (row) => row.sessions);
    const of = (name) => (measured.get(one.inst_id) || [])
      .find((row) => row.metric_name === name);
    const shown = (name, decimals) => {
      const metric = of(name);
      return metric ? number(metric.value, decimals) : '';
    };
    return el('article', { class: 'card' },
      el('h3', {}, `Instance ${one.inst_id} `, state(one.status)),
      facts([
        ['Host', one.host_name], ['Up', one.started === null ? '' : age(one.now - one.started)],
        ['Process', one.spid], ['Life, epoch', one.incarnation === null
          ? one.epoch : `${one.incarnation}, ${one.epoch}`],
        ['Interconnect', one.interconnect], ['Version', one.version],
        ['Sessions', `${number(sum(users, (row) => row.sessions))}, active ${count('ACTIVE')}, `
          + `blocked ${number(sum(users, (row) => row.blocked))}`],
        ['Active on average', shown('Average Active Sessions', 2)],
        ['Commits per second', shown('User Commits Per Sec', 1)],
        ['Host CPU used', of('Host CPU Utilization (%)')
          ? `${shown('Host CPU Utilization (%)', 0)} %` : ''],
      ]));
  });
  return {
    parts: [
      el('div', { class: 'cards' }, cards),
      section('Active sessions, the last five minutes',
        'Sessions of users that work or wait, on average of five seconds, by what they do. '
        + 'All instances together.',
        activity(rows, width, 'Active sessions by class of wait, five minutes')),
      section('Rates of the last minute', null, table('metrics', [
        { title: 'Metric', left: true, value: (r) => r.metric_name },
        { title: 'Instance', value: (r) => r.inst_id },
        { title: 'Value', value: (r) => Number(r.value), show: (r) => number(r.value, 2) },
        { title: 'Unit', left: true, value: (r) => r.metric_unit },
      ], objects(metrics), { label: 'rates' })),
    ],
  };
}

function choice(name, values, current, parameters, pageName) {
  return el('label', {}, `${name} `, el('select', {
    'data-focus': `${pageName}/${name}`,
    change: (event) => {
      const next = new URLSearchParams(parameters);
      next.set(name, event.target.value);
      location.hash = `#/${pageName}?${next}`;
    },
  }, values.map((value) => el('option', { value, selected: String(value) === String(current) },
    String(value)))));
}

// What sessions were found in: statements and events.
function sampled(statements, texts, events) {
  const words = new Map(objects(texts).map((row) => [row.sql_id, row.sql_text]));
  const top = [...grouped(objects(statements), (row) => row.sql_id)].map(([id, of]) => ({
    id, text: words.get(id), of, seconds: sum(of, (row) => row.seconds),
  })).sort((a, b) => b.seconds - a.seconds);
  const most = top.length ? top[0].seconds : 1;
  return el('div', { class: 'two' },
    section('Statements', 'Seconds of sessions in each statement. A statement that clients '
      + 'write values into has one line for each text.',
    table('ash-sql', [
      { title: 'SQL', left: true, code: true, value: (r) => r.id,
        show: (r) => toStatement(r.id) },
      { title: 'Seconds', value: (r) => r.seconds, show: (r) => number(r.seconds) },
      { title: 'By class', left: true, value: (r) => r.seconds,
        show: (r) => bar(byClass(r.of), most) },
      { title: 'Text', text: true, code: true, value: (r) => r.text,
        show: (r) => r.text || el('span', { class: 'faint' }, 'sent with values') },
    ], top, { label: 'statements', limit: 25 })),
    section('Events', 'Seconds of sessions that were in each wait when they were looked at.',
      table('ash-event', [
        { title: 'Event', left: true, value: (r) => r.event },
        classColumn,
        { title: 'Instance', value: (r) => r.inst_id },
        { title: 'Seconds', value: (r) => r.seconds, show: (r) => number(r.seconds) },
      ], events, { label: 'events', limit: 25 })));
}

export function activityPage(data, { width, parameters }) {
  const { steps, events, statements, texts, now } = data.tables;
  const shown = parameters.get('of') || 'all instances';
  const rows = objects(steps);
  const numbers = [...new Set(rows.map((row) => row.inst_id))].sort((a, b) => a - b);
  const isShown = (row) => shown === 'all instances' || String(row.inst_id) === shown;
  const minutes = Number(parameters.get('minutes'));
  return {
    parts: [
      el('div', { class: 'row' },
        choice('minutes', [5, 15, 30, 60], minutes, parameters, 'activity'),
        choice('of', ['all instances', ...numbers], shown, parameters, 'activity'),
        link('history', 'Before that')),
      activity(rows.filter(isShown), width, 'Active sessions by class of wait',
        { height: 280, focus: 'activity' }),
      sampled(statements, texts, objects(events).filter(isShown)),
      section('Active now', 'Longest wait first.', table('ash-now', [
        { title: 'Session', left: true, value: (r) => `${r.inst_id}:${r.sid}`,
          show: (r) => toSession(r.inst_id, r.sid) },
        { title: 'Role', left: true, value: (r) => r.username },
        { title: 'Program', left: true, value: (r) => r.program },
        { title: 'Event', left: true, value: (r) => r.event },
        classColumn,
        { title: 'For', value: (r) => r.wait_time_micro, show: (r) => micros(r.wait_time_micro) },
        { title: 'Waits for', left: true, value: (r) => r.blocking_session,
          show: (r) => (r.blocking_session === null ? ''
            : toSession(r.blocking_instance, r.blocking_session)) },
        { title: 'Statement', text: true, code: true, value: (r) => r.sql_text },
      ], objects(now).filter(isShown), { label: 'active sessions', limit: 100 })),
    ],
  };
}

// What snapshots have kept, of which each sample stands for ten seconds.
export function history(data, { width, parameters }) {
  const { steps, events, statements, texts, snapshots } = data.tables;
  const hours = Number(parameters.get('hours'));
  return {
    title: 'Activity before the last hour',
    parts: [
      el('div', { class: 'row' },
        choice('hours', [1, 6, 24, 72, 168], hours, parameters, 'history'),
        link('activity', 'The last hour')),
      el('p', { class: 'reading' }, 'Of the samples of active sessions snapshots keep one of ten. '
        + 'What came after the last snapshot is not here yet.'),
      activity(objects(steps), width, 'Active sessions by class of wait, from snapshots',
        { height: 280, step: Math.max(60, hours * 10), focus: 'history' }),
      sampled(statements, texts, objects(events)),
      section('Snapshots', null, table('snapshots', [
        { title: 'Snapshot', value: (r) => r.snap_id },
        { title: 'Taken', left: true, value: (r) => r.at,
          show: (r) => new Date(r.at * 1000).toLocaleString('en-GB') },
        { title: 'By instance', value: (r) => r.taken_by },
        { title: 'Took', value: (r) => r.took_micro, show: (r) => micros(r.took_micro) },
        { title: 'Missing', text: true, value: (r) => r.missing },
      ], objects(snapshots), { filter: false, label: 'snapshots', limit: 50 })),
    ],
  };
}

let chosenPair = '';

export function transfers(data, context) {
  const { parts, objects: travelled, instances } = data.tables;
  const rows = objects(parts);
  const numbers = objects(instances).map((row) => row.inst_id);
  const pairs = grouped(rows, (row) => `${row.inst_id} ← ${row.instance}`);
  const total = (of) => of.filter((row) => row.part === 'total');
  const partsOf = (of) => PARTS.map(([name]) =>
    [name, sum(of.filter((row) => row.part === name), (row) => row.time_waited_micro)]);
  const cell = (asks, serves) => {
    if (asks === serves) return el('td', { class: 'faint' }, '');
    const name = `${asks} ← ${serves}`;
    const of = pairs.get(name);
    if (!of) return el('td', { class: 'faint' }, 'no waits');
    const waits = sum(total(of), (row) => row.waits);
    const time = sum(total(of), (row) => row.time_waited_micro);
    return el('td', {}, el('button', {
      type: 'button', 'data-focus': `pair/${name}`, 'aria-pressed': String(chosenPair === name),
      click: () => { chosenPair = name; context.refresh(); },
    }, el('strong', {}, micros(waits ? time / waits : 0)), ` × ${number(waits)}`,
    bar(partsOf(of), 0, `parts of the waits of instance ${asks} for instance ${serves}`)));
  };
  if (!pairs.has(chosenPair)) chosenPair = pairs.keys().next().value || '';
  const details = (pairs.get(chosenPair) || []);
  const byEvent = [...grouped(details, (row) => row.event)].map(([event, of]) => ({
    event, of, total: total(of)[0] || { waits: 0, time_waited_micro: 0 },
  })).sort((a, b) => b.total.time_waited_micro - a.total.time_waited_micro);
  const average = (name) => (r) => {
    const part = r.of.find((row) => row.part === name);
    return part && r.total.waits ? part.time_waited_micro / r.total.waits : 0;
  };
  return {
    parts: [
      section('Who waits for whom', 'A line for each instance that waits, a column for each that '
        + 'serves it, since the start of the waiting one: the average wait, how many there were, '
        + 'and the parts of their time. Choose a pair to take it apart.',
      el('div', { class: 'scroll', tabindex: '0' }, el('table', { class: 'matrix' },
        el('thead', {}, el('tr', {}, el('th', { scope: 'col' }, 'waits ↓  serves →'),
          numbers.map((n) => el('th', { scope: 'col' }, `instance ${n}`)))),
        el('tbody', {}, numbers.map((asks) => el('tr', {},
          el('th', { scope: 'row' }, `instance ${asks}`),
          numbers.map((serves) => cell(asks, serves))))))),
      legend(PARTS.map(([name]) => name))),
      chosenPair ? section(`Instance ${chosenPair.replace(' ← ', ' waits for instance ')}`,
        'Averages in each part of a wait. Much "log flush" is a slow log at the serving instance, '
        + 'much "queue" a lack of processors there, much "in use" sessions there that work on the '
        + 'same blocks.',
        table('pair', [
          { title: 'Event', left: true, value: (r) => r.event },
          { title: 'Waits', value: (r) => r.total.waits, show: (r) => number(r.total.waits) },
          { title: 'Average', value: average('total'), show: (r) => micros(average('total')(r)) },
          { title: 'p99', value: (r) => r.total.p99_wait_micro,
            show: (r) => micros(r.total.p99_wait_micro) },
          { title: 'Longest', value: (r) => r.total.max_wait_micro,
            show: (r) => micros(r.total.max_wait_micro) },
          ...PARTS.map(([name]) => ({ title: name, value: average(name),
            show: (r) => micros(average(name)(r)) })),
        ], byEvent, { label: 'parts', filter: false })) : null,
      section('Blocks that travelled', 'Objects whose blocks one instance got from another, those '
        + 'with the longest waits first.',
      table('objects', [
        { title: 'Object', left: true, value: (r) => r.object_name },
        { title: 'From → to', left: true,
          value: (r) => `${r.from_instance} → ${r.to_instance}` },
        { title: 'Time', value: (r) => r.time_micro, show: (r) => micros(r.time_micro) },
        { title: 'Current', value: (r) => r.current_blocks,
          show: (r) => number(r.current_blocks) },
        { title: 'Copies', value: (r) => r.cr_blocks, show: (r) => number(r.cr_blocks) },
        { title: '2-way', value: (r) => r.two_way, show: (r) => number(r.two_way) },
        { title: '3-way', value: (r) => r.three_way, show: (r) => number(r.three_way) },
        { title: 'Busy', value: (r) => r.busy, show: (r) => number(r.busy) },
        { title: 'Log flushes', value: (r) => r.flush_waits,
          show: (r) => number(r.flush_waits) },
        { title: 'Flush time', value: (r) => r.flush_micro, show: (r) => micros(r.flush_micro) },
      ], objects(travelled), { label: 'objects' })),
    ].filter(Boolean),
  };
}
