--- One connection to the daemon of each workspace: sends requests without waiting, and reconnects.
---
---   closed ──open──▶ connecting ──hello──▶ ready ──lost──▶ waiting ──timer──▶ connecting
---                        └──failed──▶ waiting
---
--- A request without a connection waits for one. If the connection fails, its answer is the error
--- `unreachable`. A request that was sent but not answered is sent again only if that is safe: it only
--- reads, or it has a `request_id`. A refused request goes to the reviewers' own socket if it needs that, and
--- is sent again after the PIN if it needs that.
local config = require('editd.config')
local workspace = require('editd.workspace')

local uv = vim.uv or vim.loop

local M = {}

local RETRY_MILLISECONDS = { 100, 250, 500, 1000, 2000, 5000, 10000, 30000 }
local START_MILLISECONDS = 30000

local Connection = {}
Connection.__index = Connection

local connections = {} -- root -> Connection
local handlers = {} -- listeners to events and new connections: functions of (connection, event)

--- Return the connection of the workspace `root`, without opening it.
function M.of(root)
  if not connections[root] then
    connections[root] = setmetatable({
      root = root,
      state = 'closed',
      queue = {},
      sent = {},
      last_id = 0,
      failures = 0,
      recent = {}, -- seq -> transaction, the newest ones
    }, Connection)
  end
  return connections[root]
end

--- Return the connection to the reviewers' own socket beside that of `daemon`; nil if there is none.
local function for_review(daemon)
  local socket = daemon.path and workspace.review_socket(daemon.path)
  if daemon.socket or not socket or not workspace.is_ours(socket) then
    return nil
  end
  local one = M.of(daemon.root .. '\0review')
  one.root, one.socket = daemon.root, socket
  return one
end

--- Return all connections.
function M.all()
  return vim.tbl_values(connections)
end

--- Call `handler` with each event, and with `{event = 'connected'}` after each connection.
function M.on_event(handler)
  handlers[#handlers + 1] = handler
end

local function unreachable(why)
  return {
    name = 'unreachable',
    message = 'No editd answers: ' .. why,
    data = { hint = 'Run `editctl start` in the workspace, and see :checkhealth editd.' },
  }
end

--- Return `value`, or nil for a null of the wire.
function M.present(value)
  if value == vim.NIL then
    return nil
  end
  return value
end

--- Return whether the daemon tells with a refusal that `name` would cure it.
local function needs(err, name)
  return err and type(err.data) == 'table' and M.present(err.data[name]) == true
end

--- Send a request; `callback(error, result)` is called once, later, from the main loop.
function Connection:request(method, params, callback)
  self:ask(method, params, function(err, result)
    local reviewers = needs(err, 'needs_review_socket') and for_review(self)
    if reviewers then
      reviewers:request(method, params, callback)
    elseif needs(err, 'needs_pin') and method ~= 'review.unlock' then
      self:unlock(err, function(refusal)
        if refusal then
          callback(refusal)
        else
          self:request(method, params, callback)
        end
      end)
    else
      callback(err, result)
    end
  end)
end

--- Ask for the PIN, and give it to the daemon. `callback` gets the refusal, or nil.
function Connection:unlock(refusal, callback)
  local pin = vim.fn.inputsecret(refusal.message .. ' PIN: ')
  if pin == '' then
    callback(refusal)
  else
    self:ask('review.unlock', { pin = pin }, callback)
  end
end

--- Send a request as it is, and return its answer or its refusal.
function Connection:ask(method, params, callback)
  local ask = { method = method, params = params, callback = callback }
  ask.again = params.request_id ~= nil or (not params.edits and vim.tbl_contains({ 'read', 'stat', 'log', 'show', 'blame', 'diff', 'status', 'session.list' }, method))
  if self.state == 'ready' then
    self:send(ask)
    return
  end
  self.queue[#self.queue + 1] = ask
  if self.state ~= 'connecting' then
    self:open(not self.socket)
  end
end

--- Connect if not connected; with `may_start`, start a daemon if none answers.
function Connection:open(may_start)
  if self.state == 'connecting' or self.state == 'ready' then
    return
  end
  self:stop_timer()
  self.state = 'connecting'
  self:connect(self.socket or workspace.socket(self.root), function(why)
    if may_start and config.values.start then
      self:start()
    else
      self:failed(why)
    end
  end)
end

--- Connect to `socket`; call `otherwise(why)` if no daemon answers.
function Connection:connect(socket, otherwise)
  if not workspace.is_ours(socket) then
    otherwise('you have no socket at ' .. socket)
    return
  end
  local pipe = uv.new_pipe(false)
  pipe:connect(socket, function(why)
    vim.schedule(function()
      if why then
        pipe:close()
        otherwise(socket .. ': ' .. why)
      else
        self.path = socket
        self:connected(pipe)
      end
    end)
  end)
end

--- Start a daemon, and connect to it.
function Connection:start()
  local command = vim.list_extend({}, config.values.editctl)
  vim.list_extend(command, { '-C', self.root, 'socket' })
  if vim.fn.executable(command[1]) == 0 then
    self:failed('`' .. command[1] .. '` was not found')
    return
  end
  local lines, ended = {}, false
  local function gather(_, data)
    vim.list_extend(lines, data)
  end
  local job
  local function finish(why, socket)
    if ended then
      return
    end
    ended = true
    if why then
      self:failed(why)
    else
      self:connect(socket, function(reason)
        self:failed(reason)
      end)
    end
  end
  local printed
  job = vim.fn.jobstart(command, {
    detach = true, -- the daemon outlives this editor
    stdout_buffered = true,
    stderr_buffered = true,
    on_stdout = function(_, data)
      printed = vim.trim(table.concat(data, '\n'))
    end,
    on_stderr = gather,
    on_exit = function(_, status)
      if status == 0 and printed and printed ~= '' then
        finish(nil, printed)
      else
        finish(vim.trim(table.concat(lines, ' ')))
      end
    end,
  })
  vim.defer_fn(function()
    if not ended then
      vim.fn.jobstop(job)
      finish('`editctl socket` does not exit')
    end
  end, START_MILLISECONDS)
end

function Connection:connected(pipe)
  self.pipe, self.unpacker = pipe, vim.mpack.Unpacker()
  pipe:read_start(function(why, chunk)
    local messages = chunk and self:messages(chunk)
    vim.schedule(function()
      if self.pipe ~= pipe then
        return
      end
      for _, message in ipairs(messages or {}) do
        self:take(message)
      end
      if why or not messages then
        self:lost(why or 'it has closed the connection')
      end
    end)
  end)
  local hello = { client = config.values.actor, protocol = 1 }
  if config.values.session then
    hello.session = config.values.session
  end
  self:send({ method = 'hello', params = hello, callback = function(err, result)
    if err then
      self:lost(err.message)
    elseif workspace.is_elsewhere(result.workspace.root, self.root) then
      self:drop()
      self.sent = {}
      self:failed(('the daemon at EDITD_SOCKET serves %s, not %s'):format(result.workspace.root, self.root))
    else
      self:ready(result)
    end
  end })
end

--- Return the messages that `chunk` completes, or nil for malformed MessagePack. Runs outside the main loop.
function Connection:messages(chunk)
  local found, at = {}, 1
  while at <= #chunk do
    local ok, message, next_at = pcall(self.unpacker, chunk, at)
    if not ok then
      return nil
    end
    if message == nil then
      break
    end
    found[#found + 1], at = message, next_at
  end
  return found
end

function Connection:ready(hello)
  self.state, self.failures, self.hello, self.why = 'ready', 0, hello, nil
  self.head = hello.head
  if not self.socket then
    self:follow()
  end
  local queue = self.queue
  self.queue = {}
  for _, ask in ipairs(queue) do
    self:send(ask)
  end
  self:tell({ event = 'connected' })
end

--- Request the events from now on, and the newest transactions.
function Connection:follow()
  self:send({ method = 'subscribe', params = {}, callback = function(err, result)
    if not err then
      self.head = math.max(self.head or 0, result.head)
    end
  end, again = false })
  self:send({ method = 'log', params = { limit = 50 }, callback = function(err, result)
    for _, transaction in ipairs(not err and result.transactions or {}) do
      self.recent[transaction.seq] = transaction
    end
  end, again = false })
end

function Connection:send(ask)
  self.last_id = self.last_id + 1
  self.sent[self.last_id] = ask
  self.pipe:write(vim.mpack.encode({ 0, self.last_id, ask.method, { ask.params } }))
end

--- Handle an answer or an event.
function Connection:take(message)
  if message[1] == 1 then
    local ask = self.sent[message[2]]
    if ask then
      self.sent[message[2]] = nil
      ask.callback(M.present(message[3]), M.present(message[4]))
    end
  elseif message[1] == 2 and message[2] == 'event' then
    self:tell(message[3][1])
  end
end

function Connection:tell(event)
  if self.socket then
    return -- the workspace's other connection has the events
  end
  if event.event == 'transaction' then
    local seq = event.transaction.seq
    self.head = math.max(self.head or 0, seq)
    self.recent[seq], self.recent[seq - 200] = event.transaction, nil
  elseif event.event == 'shutdown' then
    self.was_ended = true
  end
  for _, handler in ipairs(handlers) do
    handler(self, event)
  end
end

--- Handle the end of the connection; repeatable requests wait for the next one.
function Connection:lost(why)
  local by_intent = self.was_ended
  self:drop()
  local sent = self.sent
  self.sent = {}
  for _, id in ipairs(vim.fn.sort(vim.tbl_keys(sent), 'n')) do
    local ask = sent[id]
    if ask.again then
      table.insert(self.queue, ask)
    elseif ask.method ~= 'hello' and ask.method ~= 'subscribe' then
      ask.callback(unreachable(why))
    end
  end
  self.state, self.why = 'waiting', why
  self:tell({ event = 'lost' })
  -- A daemon that was stopped on purpose is not started again at once, but by a save or by another program.
  if #self.queue > 0 then
    self:open(not self.socket)
  elseif not self.socket then
    self:retry(not by_intent)
  end
end

--- Handle a failed connection: fail all waiting requests, and try again later.
function Connection:failed(why)
  self.state, self.why = 'waiting', why
  local queue = self.queue
  self.queue = {}
  for _, ask in ipairs(queue) do
    ask.callback(unreachable(why))
  end
  self:tell({ event = 'lost' })
  if not self.socket then
    self:retry(false)
  end
end

function Connection:retry(may_start)
  if self.state ~= 'waiting' or self.timer then
    return
  end
  self.failures = math.min(self.failures + 1, #RETRY_MILLISECONDS)
  self.timer = uv.new_timer()
  self.timer:start(RETRY_MILLISECONDS[self.failures], 0, vim.schedule_wrap(function()
    self:stop_timer()
    if self.state == 'waiting' then
      self:open(may_start)
    end
  end))
end

function Connection:stop_timer()
  if self.timer then
    self.timer:stop()
    self.timer:close()
    self.timer = nil
  end
end

function Connection:drop()
  if self.pipe then
    self.pipe:read_stop()
    self.pipe:close()
    self.pipe = nil
  end
  self.was_ended = false
end

--- Close the connection for good, at the end of the editor.
function Connection:close()
  self:stop_timer()
  self:drop()
  self.state = 'closed'
end

return M
