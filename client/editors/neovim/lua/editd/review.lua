--- Proposals: their list in the quickfix window, a proposal side by side with its files, and the decision.
---
--- A decision may need the user's PIN, or the reviewers' own socket: `connection.lua` takes care of that.
local buffers = require('editd.buffers')
local connection = require('editd.connection')
local tell = require('editd.tell')

local M = {}

local api = vim.api
local present = connection.present
local TITLE = 'editd proposals'
local LIMIT = 1000

local shown = {} -- tab page -> the proposal that it shows: daemon, proposal, index, files with their buffers
local listed = {} -- the entries of the quickfix list: daemon, number, path
local counts = {} -- root -> the number of open proposals

--- Return the number of proposals that wait for a decision in the workspace `root`.
function M.count(root)
  return counts[root] or 0
end

local function request_id()
  return table.concat({ 'nvim-review', (vim.uv or vim.loop).hrtime(), vim.fn.getpid(), os.time() }, '-')
end

--- Call `callback` with the open proposals, the oldest first.
function M.open_proposals(daemon, callback)
  daemon:request('proposal.list', { limit = LIMIT }, function(err, result)
    local open = {}
    for _, proposal in ipairs(not err and result.proposals or {}) do
      if proposal.state == 'open' then
        table.insert(open, 1, proposal)
      end
    end
    if not err then
      counts[daemon.root] = #open
    end
    callback(err, open)
  end)
end

--- Return a proposal in one line.
function M.summary(proposal)
  local session = present(proposal.session)
  local who = proposal.actor .. (session and '/' .. session or '')
  local message = proposal.message ~= '' and ': ' .. proposal.message:gsub('\n.*', '') or ''
  return string.format('%d by %s%s (+%d -%d)', proposal.proposal, who, message, proposal.lines.added, proposal.lines.deleted)
end

--- Fill the quickfix list with the files of all open proposals. <CR> shows one side by side.
function M.list(daemon)
  M.open_proposals(daemon, function(err, open)
    if err then
      tell.refusal(err)
      return
    end
    local items = {}
    listed = {}
    for _, proposal in ipairs(open) do
      for _, path in ipairs(proposal.paths) do
        items[#items + 1] = { filename = daemon.root .. '/' .. path, lnum = 1, text = M.summary(proposal) }
        listed[#listed + 1] = { daemon = daemon, number = proposal.proposal, path = path }
      end
    end
    vim.fn.setqflist({}, ' ', { title = TITLE, items = items })
    if #items == 0 then
      tell.say('no proposal waits')
      return
    end
    vim.cmd('botright copen')
    vim.keymap.set('n', '<CR>', function()
      local entry = vim.fn.getqflist({ title = 0 }).title == TITLE and listed[vim.fn.line('.')]
      if entry then
        M.open(entry.daemon, entry.number, entry.path)
      else
        vim.cmd('cc ' .. vim.fn.line('.'))
      end
    end, { buffer = true, desc = 'Show this proposal' })
  end)
end

--- Return the lines of a file's text, and whether its last line has an end.
local function lines_of(text)
  local lines = vim.split(text, '\n', { plain = true })
  local has_end = lines[#lines] == ''
  if has_end then
    table.remove(lines)
  end
  for index, line in ipairs(lines) do
    lines[index] = line:gsub('%z', '\n') -- as Vim holds a NUL
  end
  return lines, has_end
end

local function text_of(file)
  local lines = api.nvim_buf_get_lines(file.right, 0, -1, false)
  for index, line in ipairs(lines) do
    lines[index] = line:gsub('\n', '\0')
  end
  if #lines == 1 and lines[1] == '' then
    return ''
  end
  return table.concat(lines, '\n') .. (file.has_end and '\n' or '')
end

local function scratch(name, text, path)
  local buf = api.nvim_create_buf(false, true)
  local lines, has_end = lines_of(text)
  api.nvim_buf_set_name(buf, 'editd://' .. name)
  api.nvim_buf_set_lines(buf, 0, -1, false, lines)
  vim.bo[buf].bufhidden, vim.bo[buf].swapfile = 'hide', false
  api.nvim_buf_call(buf, function()
    vim.cmd('silent! doautocmd <nomodeline> filetypedetect BufRead ' .. vim.fn.fnameescape(path))
  end)
  return buf, has_end
end

local function wipe(view)
  for _, file in ipairs(view.files) do
    for _, buf in ipairs({ file.left, file.right }) do
      if api.nvim_buf_is_valid(buf) then
        api.nvim_buf_delete(buf, { force = true })
      end
    end
  end
end

--- Show the file of `view` with this index: as it is now, and beside it as proposed.
local function show_file(view, index)
  local file = view.files[index]
  view.index = index
  if not file.left then
    local name = 'proposal/' .. view.proposal.proposal .. '/'
    file.left = scratch(name .. 'now/' .. file.path, present(file.old) or '', file.path)
    vim.bo[file.left].modifiable = false
    file.right, file.has_end = scratch(name .. file.path, present(file.new) or '', file.path)
    file.has_end = file.has_end or present(file.new) == nil
    file.before = text_of(file)
    vim.bo[file.right].modifiable = present(file.new) ~= nil
  end
  vim.cmd('silent! only')
  api.nvim_win_set_buf(0, file.left)
  vim.cmd('diffthis')
  vim.cmd('rightbelow vsplit')
  api.nvim_win_set_buf(0, file.right)
  vim.cmd('diffthis')
  vim.b.editd_root = view.daemon.root
  for _, buf in ipairs(buffers.all(view.daemon.root, file.path)) do
    if vim.bo[buf].modified then
      tell.say(file.path .. ' has changes here that are not saved. Save them first.', vim.log.levels.WARN)
    end
  end
  if #view.files > 1 then
    tell.say(string.format('file %d of %d; :Editd next shows the next one', index, #view.files))
  end
end

--- Show a proposal in a tab of its own, beginning with the file `path`. With `instead`, a tab, show it only
--- if that tab still shows a proposal.
function M.open(daemon, number, path, instead)
  daemon:request('proposal.get', { proposal = number, content = true }, function(err, proposal)
    if err then
      tell.refusal(err)
      return
    elseif instead and not shown[instead] then
      return
    end
    for tab, view in pairs(shown) do
      if view.proposal.proposal == number and view.daemon.root == daemon.root then
        M.close(tab)
      end
    end
    vim.cmd('tabnew')
    local empty = api.nvim_get_current_buf()
    vim.bo[empty].bufhidden = 'wipe'
    local view = { daemon = daemon, proposal = proposal, files = proposal.files }
    shown[api.nvim_get_current_tabpage()] = view
    local index = 1
    for at, file in ipairs(view.files) do
      index = file.path == path and at or index
    end
    show_file(view, index)
  end)
end

--- Close the tab of a proposal, with the reviewer's texts.
function M.close(tab)
  local view = shown[tab]
  shown[tab] = nil
  if api.nvim_tabpage_is_valid(tab) and #api.nvim_list_tabpages() > 1 then
    vim.cmd('tabclose ' .. api.nvim_tabpage_get_number(tab))
  end
  wipe(view)
end

--- Return the proposal of the current tab; or nil, after a message.
local function view_here()
  local view = shown[api.nvim_get_current_tabpage()]
  if not view then
    tell.say('this tab shows no proposal. :Editd proposals lists them', vim.log.levels.ERROR)
  end
  return view
end

--- Show the next file of the proposal, and after the last one the next proposal.
function M.next(daemon)
  local view = shown[api.nvim_get_current_tabpage()]
  if view and view.files[view.index + 1] then
    show_file(view, view.index + 1)
    return
  end
  M.open_proposals(daemon, function(err, open)
    if err then
      tell.refusal(err)
      return
    end
    for _, proposal in ipairs(open) do
      if not view or proposal.proposal > view.proposal.proposal then
        M.open(daemon, proposal.proposal)
        return
      end
    end
    tell.say(view and 'this is the last proposal' or 'no proposal waits')
  end)
end

--- Tell the end of a decision, and close the tab; after a change of the proposal, show it as it is now.
local function decided(view, words)
  local tab = api.nvim_get_current_tabpage()
  return function(err, result)
    local number = view.proposal.proposal
    if err then
      tell.refusal(err)
      if err.name == 'stale' and shown[tab] == view then
        M.open(view.daemon, number, view.files[view.index].path, tab)
      end
      return
    end
    if shown[tab] == view then
      M.close(tab)
    end
    local transaction = present(result.transaction)
    tell.say('proposal ' .. number .. ' ' .. words .. (transaction and ' as ' .. transaction.seq or ''))
  end
end

local function approve(view, comment)
  local params = { proposal = view.proposal.proposal, view = view.proposal.view, comment = comment, request_id = request_id() }
  for _, file in ipairs(view.files) do
    local text = file.right and api.nvim_buf_is_valid(file.right) and text_of(file)
    if text and text ~= file.before then
      params.files = params.files or {}
      table.insert(params.files, { path = file.path, content = text, base = file.now })
    end
  end
  view.daemon:request('proposal.approve', params, decided(view, 'has landed'))
end

--- Approve the proposal of this tab as it is shown, with the reviewer's own texts.
function M.approve(comment)
  local view = view_here()
  if not view then
    return
  end
  local unseen = 0
  for _, file in ipairs(view.files) do
    unseen = unseen + (file.left and 0 or 1)
  end
  if unseen == 0 then
    approve(view, comment)
    return
  end
  vim.ui.select({ 'approve', 'cancel' }, {
    prompt = (unseen == 1 and '1 file has' or unseen .. ' files have') .. ' not been shown:',
    kind = 'editd_unseen',
    format_item = function(item)
      return item == 'approve' and 'Approve: all of it' or 'Cancel'
    end,
  }, function(choice)
    if choice == 'approve' then
      approve(view, comment)
    end
  end)
end

--- Reject the proposal of this tab.
function M.reject(comment)
  local view = view_here()
  if view then
    local params = { proposal = view.proposal.proposal, comment = comment, request_id = request_id() }
    view.daemon:request('proposal.reject', params, decided(view, 'is rejected'))
  end
end

connection.on_event(function(daemon, event)
  if event.event == 'connected' or event.event == 'proposal' then
    M.open_proposals(daemon, function()
      vim.cmd('redrawstatus!')
    end)
  end
end)

api.nvim_create_autocmd('TabClosed', {
  group = api.nvim_create_augroup('editd_review', { clear = true }),
  callback = function()
    for tab, view in pairs(shown) do
      if not api.nvim_tabpage_is_valid(tab) then
        shown[tab] = nil
        wipe(view)
      end
    end
  end,
})

return M
