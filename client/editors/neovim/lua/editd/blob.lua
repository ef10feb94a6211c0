--- The version of some bytes: git's blob id, which editd uses as the version.
local bit = require('bit')
local band, bor, bxor, bnot, rol, tobit = bit.band, bit.bor, bit.bxor, bit.bnot, bit.rol, bit.tobit
local lshift = bit.lshift
local byte = string.byte

local M = {}

local words = {}

--- Mix 64 bytes of `text` from `at` on into the five words of `state`.
local function block(state, text, at)
  local w = words
  for index = 0, 15 do
    local one, two, three, four = byte(text, at + index * 4, at + index * 4 + 3)
    w[index] = bor(lshift(one, 24), lshift(two, 16), lshift(three, 8), four)
  end
  for index = 16, 79 do
    w[index] = rol(bxor(w[index - 3], w[index - 8], w[index - 14], w[index - 16]), 1)
  end
  local a, b, c, d, e = state[1], state[2], state[3], state[4], state[5]
  for index = 0, 19 do
    a, b, c, d, e = tobit(rol(a, 5) + bor(band(b, c), band(bnot(b), d)) + e + 0x5A827999 + w[index]), a, rol(b, 30), c, d
  end
  for index = 20, 39 do
    a, b, c, d, e = tobit(rol(a, 5) + bxor(b, c, d) + e + 0x6ED9EBA1 + w[index]), a, rol(b, 30), c, d
  end
  for index = 40, 59 do
    a, b, c, d, e = tobit(rol(a, 5) + bor(band(b, c), band(b, d), band(c, d)) + e + 0x8F1BBCDC + w[index]), a, rol(b, 30), c, d
  end
  for index = 60, 79 do
    a, b, c, d, e = tobit(rol(a, 5) + bxor(b, c, d) + e + 0xCA62C1D6 + w[index]), a, rol(b, 30), c, d
  end
  state[1], state[2], state[3] = tobit(state[1] + a), tobit(state[2] + b), tobit(state[3] + c)
  state[4], state[5] = tobit(state[4] + d), tobit(state[5] + e)
end

--- Return SHA-1 of `text` in 40 hex digits.
local function sha1(text)
  local state = { tobit(0x67452301), tobit(0xEFCDAB89), tobit(0x98BADCFE), tobit(0x10325476), tobit(0xC3D2E1F0) }
  local whole = #text - #text % 64
  for at = 1, whole, 64 do
    block(state, text, at)
  end
  local rest = text:sub(whole + 1) .. '\128'
  rest = rest .. string.rep('\0', (56 - #rest) % 64)
  local bits = #text * 8
  for shift = 7, 0, -1 do
    rest = rest .. string.char(math.floor(bits / 256 ^ shift) % 256)
  end
  for at = 1, #rest, 64 do
    block(state, rest, at)
  end
  local digits = {}
  for index = 1, 5 do
    digits[index] = bit.tohex(state[index])
  end
  return table.concat(digits)
end

--- Return the version of `bytes`, the same as `git hash-object --no-filters`.
function M.version(bytes)
  return sha1('blob ' .. #bytes .. '\0' .. bytes)
end

return M
