// The page is what the server renders. This puts changed parts in their places, and keys to their links
// and buttons. The selection and what the reviewer has typed belong to the page, and stay.

const policy = window.trustedTypes
  ? trustedTypes.createPolicy('editd', { createHTML: text => text })
  : { createHTML: text => text };
const PART = 'application/vnd.editd.parts+json';
const $ = id => document.getElementById(id);
let touched = new Map();   // what the reviewer has chosen and typed, by the id or name of its field
let unseen = new Set();    // the hunks that have come since the page was opened
let heldView = null;       // the view before other hunks came: the daemon refuses an approval of it
let hunk = null;           // the id of the current hunk
let stream = null;
let newest = 0;            // the number of the last request
let isPressed = false;     // the first button of the mouse, or a finger
const arrived = [];        // parts that wait for its end: what is replaced in the middle of a click is not clicked

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
  for (const base of root.querySelectorAll('.own input[type=hidden]'))
    if (touched.has(base.id)) base.value = touched.get(base.id);
};

// A hunk keeps its choice while the files move. One that has come meanwhile is left open: nobody has seen it.
const keepChoices = (old, fresh, isNews) => {
  const about = root => root.querySelector('#decide')?.getAttribute('action');
  if (!about(old) || about(old) !== about(fresh)) return;
  const view = root => root.querySelector('#decide [name=view]');
  const shown = root => [...root.querySelectorAll('tbody[data-hunk]')].map(
    one => `${one.dataset.hunk} ${[...one.classList].find(name => name.startsWith('state-'))}`).join();
  if (isNews && shown(old) !== shown(fresh)) heldView ??= view(old).value;
  if (heldView) view(fresh).value = heldView;
  const choices = (root, id) => [...root.querySelectorAll(`tbody[data-hunk="${id}"] .choice input`)];
  let hasUnseen = false;
  for (const { dataset: { hunk: id } } of fresh.querySelectorAll('tbody[data-hunk]')) {
    const before = choices(old, id), now = choices(fresh, id);
    if (!now.length) continue;
    if (!before.length) { unseen.add(id); hasUnseen = true; }
    const kept = now.find(one => one.value === (before.find(one => one.checked)?.value ?? 'open'));
    if (!kept.disabled) kept.checked = true;
  }
  if (hasUnseen) say('There are new hunks. Choose about them.', true);
};

const put = (id, html, isNews) => {
  const old = $(id);
  if (!old) return;
  const box = document.createElement('template');
  box.innerHTML = policy.createHTML(html);
  const fresh = box.content.firstElementChild;
  const focus = old.contains(document.activeElement) ? document.activeElement : null;
  const at = focus && [key(focus), focus.selectionStart, focus.selectionEnd];
  const open = [...old.querySelectorAll('details[open] > summary')].map(one => one.textContent);
  const top = old.scrollTop;
  keepChoices(old, fresh, isNews);
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
  for (const one of hunks()) {
    one.classList.toggle('current', one.id === hunk);
    one.classList.toggle('unseen', unseen.has(one.dataset.hunk));
  }
  count();
};
const count = () => {
  for (const file of document.querySelectorAll('.file')) {
    const all = [...file.querySelectorAll('.choice input[value=approve]')];
    const words = file.querySelector('.chosen');
    const chosen = all.filter(one => one.checked).length;
    if (words && all.length) words.textContent = `${chosen} of ${all.length} hunk${all.length === 1 ? '' : 's'} chosen`;
  }
};

const say = (text, isRefusal) => {
  const line = $('said');
  line.textContent = text;
  line.classList.toggle('refusal', isRefusal);
};

const show = (answer, isRefusal, isNew) => {
  heldView = null;
  arrived.length = 0;   // they are of the page before
  if (isNew) { touched = new Map(); unseen = new Set(); hunk = null; }
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
    isAway(false);
    arrived.push(JSON.parse(event.data));
    if (!isPressed) putArrived();
  });
  stream.addEventListener('gone', () => isAway(true));
  stream.onerror = () => isAway(true);
  stream.onopen = () => isAway(false);
};
const putArrived = () => {
  for (const { id, html } of arrived.splice(0)) put(id, html, true);
};
const AWAY = 'No answer: this is the last state.';
const isAway = is => {
  if (document.body.classList.toggle('away', is)) say(AWAY, true);
  else if ($('said').textContent === AWAY) say('', false);
};

const answered = async (request, isNew, isPost, isBack) => {
  const mine = ++newest;
  let answer;
  try { answer = await fetch(...request); } catch { say('The server does not answer.', true); return false; }
  if (answer.headers.get('content-type') !== PART) {
    const text = new DOMParser().parseFromString(policy.createHTML(await answer.text()), 'text/html');
    say(text.querySelector('p')?.textContent ?? 'This did not work.', true);
    return false;
  }
  const parts = await answer.json();
  if (mine !== newest) {   // a later request has been made: its answer is what is shown
    if (isPost) say(parts.said, !answer.ok);
    return false;
  }
  show(parts, !answer.ok, isNew && answer.ok);
  const isElsewhere = parts.path !== location.pathname + location.search;
  if (isBack) history.replaceState(null, '', parts.path);
  else if (isElsewhere && (!isPost || (answer.ok && parts.page))) history.pushState(null, '', parts.path);
  return answer.ok;
};
const go = (url, isBack) => answered([url, { headers: { Accept: PART } }], true, false, isBack);

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
const current = () => $(hunk)?.closest('.file') ?? null;
const step = by => {
  const all = hunks();
  const at = all.findIndex(one => one.id === hunk);
  enter(all[Math.max(0, Math.min(all.length - 1, at + by))]);
};
const stepFile = by => {
  const files = [...document.querySelectorAll('.file')].filter(one => one.querySelector('tbody[data-hunk]'));
  const at = files.indexOf(current());
  enter(files[Math.max(0, Math.min(files.length - 1, at + by))]?.querySelector('tbody[data-hunk]'));
};
const enter = next => {
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

const mark = () => {
  if (!hunks().some(one => one.id === hunk)) step(1);
  $(hunk)?.querySelector('input[type=checkbox]')?.click();
};
const edit = () => {
  const own = (current() ?? document).querySelector('details.own');
  if (!own) return say('No text can be edited here.', true);
  own.open = true;
  if (!own.querySelector('.land').checked) own.querySelector('.land').click();
  own.querySelector('textarea').focus();
};
// An action of a form or a link: of the current file, otherwise of the page.
const act = name => {
  const all = [...document.querySelectorAll(`[data-does="${name}"]`)];
  const path = current()?.dataset.path;
  const one = all.find(each => path !== undefined && each.dataset.path === path) ?? all[0];
  if (!one) say('This is not possible here.', true);
  else if (one.matches('summary')) {   // a question: its button is next
    one.parentElement.open = true;
    one.parentElement.querySelector('button').focus();
  }
  else if (name !== 'revoke' && one.matches('button, a')) one.click();
  else one.focus();
};
const comment = () => {
  const about = $('about');
  if (about && $(hunk)) {
    about.value = $(hunk).dataset.hunk;
    about.dispatchEvent(new Event('change', { bubbles: true }));
  }
  act('comment');
};
const allow = async () => {
  const link = document.querySelector('a[data-does=allow]');
  if (!link || await go(link.getAttribute('href'))) act('allow');
};
const ACTIONS = {
  'next': () => select(1), 'previous': () => select(-1),
  'next-hunk': () => step(1), 'previous-hunk': () => step(-1),
  'next-file': () => stepFile(1), 'previous-file': () => stepFile(-1),
  'choose': choose, 'mark': mark, 'edit': edit, 'comment': comment, 'allow': allow,
  'filter': () => $('filter')?.focus(), 'help': () => $('help').showModal(),
};
const carryOut = name => ACTIONS[name] ? ACTIONS[name]() : act(name);

document.addEventListener('keydown', event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const isTyping = event.target.closest('textarea, select, input:not([type=radio]):not([type=checkbox])');
  if (event.key === 'Escape' && isTyping) { event.target.blur(); return; }
  if (isTyping) return;
  if ($('help')?.open) return;
  const inList = event.target.id === 'options';
  const pressed = event.key === ' ' ? 'space' : event.key;
  if (pressed === 'space' && event.target.closest('button, summary, input, a')) return;
  const sought = `[data-key="${CSS.escape(pressed)}"]`;
  const answer = $('detail').querySelector(sought);   // a button of a question
  const arrows = inList ? { ArrowDown: 'next', ArrowUp: 'previous' } : {};
  const named = arrows[pressed] ?? $('keys').querySelector(sought)?.dataset.action;
  if (!answer && !named) return;
  event.preventDefault();
  if (answer) answer.click(); else carryOut(named);
});

document.addEventListener('click', event => {
  const row = event.target.closest('tbody[data-hunk]');
  if (row) { hunk = row.id; dress(); }
  const key = event.target.closest('#keys [data-action]');
  if (key) carryOut(key.dataset.action);
  const link = event.target.closest('a[href^="/"]');
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  go(link.getAttribute('href'));
});

document.addEventListener('pointerdown', event => { isPressed = !event.button; });
for (const kind of ['pointerup', 'pointercancel'])
  document.addEventListener(kind, () => {
    isPressed = false;
    setTimeout(putArrived);   // after the click itself
  });

for (const kind of ['input', 'change'])
  document.addEventListener(kind, event => {
    const field = event.target;
    touched.set(field.type === 'radio' ? field.name : key(field), field.type === 'checkbox' ? field.checked : field.value);
    // A text is for the version that was shown when it was begun: what others do later is merged.
    for (const base of field.closest('.own')?.querySelectorAll('input[type=hidden]') ?? [])
      if (!touched.has(base.id)) touched.set(base.id, base.value);
    if (field.type === 'radio') unseen.delete(field.name.slice(5));
    dress();
  });

// The approved hunks, for a trial of some of them: none if all are approved.
const someHunks = () => {
  const radios = [...document.querySelectorAll('.choice input[value=approve]')];
  return radios.every(one => one.checked) ? [] : radios.filter(one => one.checked).map(one => one.name.slice(5));
};

document.addEventListener('submit', async event => {
  const form = event.target, button = event.submitter;
  if (form.method === 'dialog') return;
  event.preventDefault();
  const given = new URLSearchParams(new FormData(form, button));
  if (form.method === 'get') { go(`${form.getAttribute('action')}?${given}`); return; }
  if (form.id === 'try') for (const one of someHunks()) given.append('hunk', one);
  const url = button?.getAttribute('formaction') ?? form.getAttribute('action');
  const isComment = url.endsWith('/comment');
  say('…', false);
  if (isComment) for (const name of ['comment', 'about']) touched.delete(name);
  const request = [url, { method: 'POST', body: given, headers: { Accept: PART } }];
  await answered(request, !isComment && form.id !== 'try', true);
});

window.addEventListener('popstate', () => go(location.pathname + location.search, true));
setInterval(tick, 10000);
dress();
follow(document.body.dataset.page, document.body.dataset.version);
