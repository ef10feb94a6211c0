// The page is what the server renders. This puts changed parts in their places, and keys to their links
// and buttons. The selection and what the reviewer has typed belong to the page, and stay.

const policy = window.trustedTypes
  ? trustedTypes.createPolicy('editd', { createHTML: text => text })
  : { createHTML: text => text };
const PART = 'application/vnd.editd.parts+json';
const $ = id => document.getElementById(id);
let touched = new Map();   // what the reviewer has chosen and typed, by the id or name of its field
let hunk = null;           // the id of the current hunk
let stream = null;

// ── Parts ──

const key = field => field.id || `${field.name}=${field.type === 'checkbox' ? field.value : ''}`;
const fields = root => root.querySelectorAll('input:not([type=hidden]), textarea, select');

const restore = root => {
  for (const field of fields(root)) {
    const kept = touched.get(field.type === 'radio' ? field.name : key(field));
    if (kept === undefined || field.disabled) continue;
    if (field.type === 'radio') { if (kept === field.value) field.checked = true; }
    else if (field.type === 'checkbox') field.checked = kept;
    else field.value = kept;
  }
};

const put = (id, html) => {
  const old = $(id);
  if (!old) return;
  const box = document.createElement('template');
  box.innerHTML = policy.createHTML(html);
  const fresh = box.content.firstElementChild;
  const focus = old.contains(document.activeElement) ? document.activeElement : null;
  const at = focus && [key(focus), focus.selectionStart, focus.selectionEnd];
  const open = [...old.querySelectorAll('details[open] > summary')].map(one => one.textContent);
  const top = old.scrollTop;
  old.replaceWith(fresh);
  restore(fresh);
  for (const summary of fresh.querySelectorAll('summary'))
    if (open.includes(summary.textContent)) summary.parentElement.open = true;
  fresh.scrollTop = top;
  if (at) {
    const again = focus === old ? fresh : [...fields(fresh), ...fresh.querySelectorAll('[id]')].find(one => key(one) === at[0]);
    again?.focus({ preventScroll: true });
    if (again?.setSelectionRange && at[1] !== null && at[1] !== undefined) {
      try { again.setSelectionRange(at[1], at[2]); } catch { /* a field without a selection */ }
    }
  }
  dress();
};

const age = time => {
  const seconds = Math.max(0, (Date.now() - Date.parse(time)) / 1000);
  for (const [unit, length] of [['d', 86400], ['h', 3600], ['min', 60]])
    if (seconds >= 2 * length) return `${Math.floor(seconds / length)} ${unit} ago`;
  return `${Math.floor(seconds)} s ago`;
};
const tick = () => {
  for (const time of document.querySelectorAll('time')) {
    time.title ||= time.textContent;
    if (Date.parse(time.dateTime) < Date.now()) time.textContent = age(time.dateTime);
  }
};

// What needs the script: ages, the current hunk, and a list with one stop for the tab key.
const dress = () => {
  tick();
  for (const one of document.querySelectorAll('#options a')) one.tabIndex = -1;
  $('options')?.setAttribute('aria-activedescendant', selected()?.id ?? '');
  for (const one of hunks()) one.classList.toggle('current', one.id === hunk);
};

const say = (text, isRefusal) => {
  const line = $('said');
  line.textContent = text;
  line.classList.toggle('refusal', isRefusal);
};

const show = (answer, isRefusal, isNew) => {
  if (isNew) { touched = new Map(); hunk = null; }
  for (const [id, html] of Object.entries(answer.parts)) put(id, html);
  document.title = answer.title;
  say(answer.said, isRefusal);
  follow(answer.page, answer.version);
  $('pin')?.focus();
};

const follow = (page, version) => {
  stream?.close();
  stream = null;
  if (!page) return;
  stream = new EventSource(`/events?${new URLSearchParams({ page, version })}`);
  stream.addEventListener('part', event => {
    document.body.classList.remove('away');
    const part = JSON.parse(event.data);
    put(part.id, part.html);
  });
  stream.addEventListener('gone', () => document.body.classList.add('away'));
  stream.onerror = () => document.body.classList.add('away');
  stream.onopen = () => document.body.classList.remove('away');
};

const answered = async (request, isNew, url) => {
  let answer;
  try { answer = await fetch(...request); } catch { say('The server does not answer.', true); return; }
  if (answer.headers.get('content-type') !== PART) {
    const text = new DOMParser().parseFromString(policy.createHTML(await answer.text()), 'text/html');
    say(text.querySelector('p')?.textContent ?? 'This did not work.', true);
    return;
  }
  const parts = await answer.json();
  show(parts, !answer.ok, isNew && answer.ok);
  if (url !== undefined && parts.path !== location.pathname + location.search) history.pushState(null, '', url || parts.path);
};
const go = url => answered([url, { headers: { Accept: PART } }], true, url);

// ── The list and the hunks ──

const options = () => [...document.querySelectorAll('#options a')];
const selected = () => options().find(one => one.getAttribute('aria-selected') === 'true');
const hunks = () => [...document.querySelectorAll('tbody[data-hunk]')];

const select = step => {
  const rows = options();
  const at = rows.indexOf(selected());
  const next = rows[Math.max(0, Math.min(rows.length - 1, at + step))];
  if (!next || next === rows[at]) return;
  rows.forEach(one => one.setAttribute('aria-selected', String(one === next)));
  next.scrollIntoView({ block: 'nearest' });
  $('options').setAttribute('aria-activedescendant', next.id);
  go(next.getAttribute('href'));
};
const step = by => {
  const all = hunks();
  const at = all.findIndex(one => one.id === hunk);
  const next = all[Math.max(0, Math.min(all.length - 1, at + by))];
  if (!next) return;
  hunk = next.id;
  dress();
  next.scrollIntoView({ block: 'nearest' });
  next.focus({ preventScroll: true });
};
const choose = () => {
  if (!hunks().some(one => one.id === hunk)) step(1);
  const radios = [...($(hunk)?.querySelectorAll('input[type=radio]') ?? [])].filter(one => !one.disabled);
  const at = radios.findIndex(one => one.checked);
  radios[(at + 1) % radios.length]?.click();
};

const press = value => $('decide')?.querySelector(`button[value=${value}]`)?.click();
const ACTIONS = {
  'next': () => select(1), 'previous': () => select(-1),
  'next-hunk': () => step(1), 'previous-hunk': () => step(-1), 'choose': choose,
  'approve': () => press('approve'), 'reject': () => press('reject'), 'comment': () => $('comment')?.focus(),
  'undo': () => $('undo')?.querySelector('button')?.click(),
  'help': () => document.querySelector('footer').scrollIntoView(),
};

document.addEventListener('keydown', event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const isTyping = event.target.closest('textarea, select, input:not([type=radio]):not([type=checkbox])');
  if (event.key === 'Escape' && isTyping) { event.target.blur(); return; }
  if (isTyping) return;
  const inList = event.target.id === 'options';
  const pressed = event.key === ' ' ? 'space' : event.key;
  if (pressed === 'space' && event.target.closest('button, summary, input, a')) return;
  const arrows = inList ? { ArrowDown: 'next', ArrowUp: 'previous' } : {};
  const named = arrows[pressed] ?? document.querySelector(`[data-key="${CSS.escape(pressed)}"]`)?.dataset.action;
  if (!ACTIONS[named]) return;
  event.preventDefault();
  ACTIONS[named]();
});

document.addEventListener('click', event => {
  const row = event.target.closest('tbody[data-hunk]');
  if (row) { hunk = row.id; dress(); }
  const link = event.target.closest('a[href^="/"]');
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  go(link.getAttribute('href'));
});

for (const kind of ['input', 'change'])
  document.addEventListener(kind, event => {
    const field = event.target;
    touched.set(field.type === 'radio' ? field.name : key(field), field.type === 'checkbox' ? field.checked : field.value);
  });

document.addEventListener('submit', event => {
  const form = event.target, button = event.submitter;
  event.preventDefault();
  const given = new URLSearchParams(new FormData(form, button));
  if (form.method === 'get') { go(`${form.getAttribute('action')}?${given}`); return; }
  const url = button?.getAttribute('formaction') ?? form.getAttribute('action');
  say('…', false);
  answered([url, { method: 'POST', body: given, headers: { Accept: PART } }], true);
});

window.addEventListener('popstate', () => go(location.pathname + location.search));
setInterval(tick, 10000);
dress();
follow(document.body.dataset.page, document.body.dataset.version);
