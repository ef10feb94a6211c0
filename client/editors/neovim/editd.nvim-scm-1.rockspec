rockspec_format = "3.0"
package = "editd.nvim"
version = "scm-1"
source = {
  url = "git+https://example.invalid/editd.nvim",
}
description = {
  summary = "Saves through editd, and buffers that follow their files",
  license = "MIT",
  labels = { "neovim" },
}
dependencies = { "lua >= 5.1" }
build = {
  type = "builtin",
  copy_directories = { "doc", "plugin" },
}
