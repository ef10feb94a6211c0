-- Loaded once, by any plugin manager. Connects only when a file of a workspace is read.
if vim.g.loaded_editd then
  return
end
vim.g.loaded_editd = true

if vim.fn.has('nvim-0.7') == 0 then
  vim.api.nvim_err_writeln('editd needs Neovim 0.7 or later')
  return
end

vim.api.nvim_create_user_command('Editd', function(given)
  require('editd.command').run(given)
end, {
  nargs = '*',
  bang = true,
  desc = 'The history of this workspace, kept by editd',
  complete = function(...)
    return require('editd.command').complete(...)
  end,
})

require('editd.buffers').start()
