// The console: login, pages by the part of the address behind `#`, refreshing, keys.

import { el, forgetTables, number } from './dom.js';
import { patterns } from './chart.js';
import { PAGES } from './pages.js';

const REFRESH_MS = 5000;
const TOKEN = 'token';

const find = (id) => document.getElementById(id);
const content = find('content');
let paused = false;
let timer = 0;
let turn = 0;
// Rates of a page need what it was given before.
let before = { place: '', data: null, at: 0 };

// The tabs of one browser share a login: a new one asks the others.
const tabs = new BroadcastChannel('braid-console');
tabs.onmessage = (event) => {
  const token = sessionStorage.getItem(TOKEN);
  if (event.data.asks && token) tabs.postMessage({ token });
  if (event.data.token && !token) {
    sessionStorage.setItem(TOKEN, event.data.token);
    show();
  }
  if (event.data.leaves && token) leave(false);
};

class Refused extends Error {}

async function ask(path) {
  const answer = await fetch(`/api/${path}`, {
    headers: { Authorization: `Bearer ${sessionStorage.getItem(TOKEN) || ''}` },
    cache: 'no-store',
  });
  const isJson = (answer.headers.get('Content-Type') || '').startsWith('application/json');
  const data = isJson ? await answer.json() : { error: { message: await answer.text() } };
  if (answer.status === 401) throw new Refused(data.error.message);
  if (!answer.ok) throw new Error(data.error.message);
  return data;
}

// The page and its parameters, as in `#/session?instance=1&sid=7`.
function place() {
  const [path, query] = location.hash.replace(/^#\/?/, '').split('?');
  const found = PAGES.find((page) => page.name === path);
  return { page: found || PAGES[0], parameters: new URLSearchParams(query || '') };
}

function login(why) {
  clearTimeout(timer);
  find('top').hidden = true;
  document.title = 'Log in · Braid console';
  const name = el('input', { id: 'user', autocomplete: 'username', required: true,
    autocapitalize: 'none', spellcheck: 'false' });
  const password = el('input', { id: 'password', type: 'password',
    autocomplete: 'current-password' });
  const said = el('p', { role: 'alert', class: why ? 'error' : undefined }, why || '');
  const form = el('form', {
    class: 'login',
    submit: async (event) => {
      event.preventDefault();
      said.textContent = '';
      said.className = '';
      try {
        const answer = await fetch('/api/login', {
          method: 'POST',
          headers: { 'Content-Type': 'application/json' },
          body: JSON.stringify({ user: name.value, password: password.value }),
        });
        const text = await answer.text();
        let data = {};
        try { data = JSON.parse(text); } catch { data = { error: { message: text } }; }
        if (!answer.ok) throw new Error(data.error.message);
        sessionStorage.setItem(TOKEN, data.token);
        tabs.postMessage({ token: data.token });
        show();
      } catch (error) {
        said.className = 'error';
        said.textContent = error.message;
        password.value = '';
        password.focus();
      }
    },
  },
  el('h1', {}, 'Braid console'),
  el('p', { class: 'faint' }, 'As a role of the database. The password may be left out where the '
    + 'access rules ask for none.'),
  el('label', { for: 'user' }, 'Role'), name,
  el('label', { for: 'password' }, 'Password'), password,
  el('button', { type: 'submit' }, 'Log in'), said);
  content.replaceChildren(form);
  name.focus();
}

function leave(tell) {
  sessionStorage.removeItem(TOKEN);
  if (tell) tabs.postMessage({ leaves: true });
  login('');
}

function navigation(current) {
  find('top').hidden = false;
  const listed = PAGES.filter((page) => page.title);
  find('pages').replaceChildren(...listed.map((page, at) => el('a', {
    href: `#/${page.name}`, title: `${(at + 1) % 10}`, 'data-focus': `page/${page.name}`,
    'aria-current': current.name === page.name || current.under === page.name
      ? 'page' : undefined,
  }, page.title)));
}

// Draws a page, and gives the focus back to the element that had it.
function draw(page, parameters, data) {
  const active = document.activeElement;
  const focused = active && active.getAttribute('data-focus');
  const [from, to] = active && active.selectionStart !== undefined
    ? [active.selectionStart, active.selectionEnd] : [null, null];
  const width = Math.max(300, content.clientWidth - 34);
  const now = performance.now() / 1000;
  const last = before.place === location.hash ? before : null;
  const drawn = page.draw(data, { parameters, width, before: last && last.data,
    seconds: last ? now - last.at : 0, refresh: show });
  const warnings = data.warnings.map((text) =>
    el('div', { class: 'warning', role: 'status' }, text));
  content.replaceChildren(el('h1', {}, drawn.title || page.title), ...warnings, ...drawn.parts);
  before = { place: location.hash, data, at: now };
  content.removeAttribute('aria-busy');
  document.title = `${drawn.title || page.title} · Braid console`;
  find('state').textContent = `instance ${data.instance}, ${data.user}, `
    + `${number(data.took_ms, 0)} ms${paused ? ', paused' : ''}`;
  if (focused) {
    const again = document.querySelector(`[data-focus="${CSS.escape(focused)}"]`);
    if (again) {
      again.focus({ preventScroll: true });
      if (from !== null && again.setSelectionRange && again.type !== 'number') {
        again.setSelectionRange(from, to);
      }
    }
  }
}

async function show() {
  clearTimeout(timer);
  turn += 1;
  const own = turn;
  const { page, parameters } = place();
  navigation(page);
  if (before.place !== location.hash) {
    content.setAttribute('aria-busy', 'true');
    find('state').textContent = 'asking';
  }
  try {
    const given = new URLSearchParams(page.defaults || {});
    parameters.forEach((value, name) => given.set(name, value));
    const data = await ask(`${page.data || page.name}?${given}`);
    if (own !== turn) return;
    draw(page, given, data);
  } catch (error) {
    if (own !== turn) return;
    content.removeAttribute('aria-busy');
    if (error instanceof Refused) {
      sessionStorage.removeItem(TOKEN);
      login(before.data ? error.message : '');
      tabs.postMessage({ asks: true });
      return;
    }
    const text = error instanceof TypeError
      ? 'No instance answers. Asking again.' : error.message;
    const said = el('div', { class: 'error', role: 'alert' }, text);
    if (before.place === location.hash && before.data) {
      content.querySelectorAll(':scope > .error').forEach((old) => old.remove());
      content.prepend(said);
    } else {
      content.replaceChildren(el('h1', {}, page.title || ''), said);
    }
  }
  timer = setTimeout(() => {
    if (paused || document.hidden) return;
    show();
  }, REFRESH_MS);
}

function pause() {
  paused = !paused;
  find('pause').setAttribute('aria-pressed', String(paused));
  find('pause').textContent = paused ? 'Go on' : 'Pause';
  if (!paused) show();
}

function theme(wanted) {
  document.documentElement.setAttribute('data-theme', wanted);
  localStorage.setItem('theme', wanted);
  find('theme').textContent = wanted === 'dark' ? 'Light' : 'Dark';
}

const turned = () =>
  theme(document.documentElement.getAttribute('data-theme') === 'dark' ? 'light' : 'dark');

function help() {
  const keys = [['1 … 9, 0', 'pages, in the order of the list'], ['/', 'the filter of a table'],
    ['p', 'pause and go on'], ['r', 'ask again now'], ['d', 'dark or light'],
    ['← →', 'along a chart that has the focus'], ['?', 'these keys'], ['Esc', 'close']];
  const dialog = find('keys');
  dialog.replaceChildren(el('h2', {}, 'Keys'), el('dl', {}, keys.map(([name, does]) =>
    [el('dt', {}, el('kbd', {}, name)), el('dd', {}, does)])),
  el('form', { method: 'dialog' }, el('button', {}, 'Close')));
  dialog.showModal();
}

document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || find('top').hidden) return;
  if (event.target.matches('input, select, textarea')) {
    if (event.key === 'Escape') event.target.blur();
    return;
  }
  if (find('keys').open) return;
  const listed = PAGES.filter((page) => page.title);
  if (/^[0-9]$/.test(event.key)) {
    const page = listed[(Number(event.key) + 9) % 10];
    if (page) location.hash = `#/${page.name}`;
    return;
  }
  const does = { p: pause, r: show, d: turned, '?': help, '/': () => {
    const filter = content.querySelector('input[type="search"]');
    if (filter) filter.focus();
  } }[event.key];
  if (does) {
    event.preventDefault();
    does();
  }
});

find('pause').addEventListener('click', pause);
find('theme').addEventListener('click', turned);
find('help').addEventListener('click', help);
find('leave').addEventListener('click', () => leave(true));
document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault();
  content.focus();
});
window.addEventListener('hashchange', () => {
  forgetTables();
  window.scrollTo(0, 0);
  show();
});
document.addEventListener('visibilitychange', () => {
  if (!document.hidden && !paused && sessionStorage.getItem(TOKEN)) show();
});
document.body.prepend(patterns());
theme(localStorage.getItem('theme')
  || (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light'));
show();
