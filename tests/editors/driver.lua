-- Stands in for the user of a headless Neovim: notes what is said, and chooses what the test has said.
_G.said, _G.asked, _G.choice = {}, {}, nil
vim.o.more, vim.o.swapfile, vim.o.hidden = false, false, true

vim.fn.inputsecret = function()
  return _G.pin or ''
end

vim.notify = function(text)
  table.insert(_G.said, text)
end

vim.ui.select = function(items, options, on_choice)
  local shown = vim.tbl_map(options.format_item or tostring, items)
  table.insert(_G.asked, { prompt = options.prompt, items = items, shown = shown })
  for _, item in ipairs(items) do
    if item == _G.choice or _G.choose_first then
      on_choice(item)
      return
    end
  end
  on_choice(nil)
end
