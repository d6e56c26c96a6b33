/**
 * The Lua scripts. Each runs as one step of Redis, and gets the life of the server as its first argument. All keys and channels are in `KEYS`, because some brokers refuse others. `PUBLISH` is
 * replaced by `SPUBLISH` for a cluster.
 */

/** Refuses a script that runs after the end of the term, which is the last of ARGV, in microseconds of the server's clock. */
const inTime = `
local at = redis.call('TIME')
if at[1] * 1000000 + at[2] > tonumber(ARGV[#ARGV]) then
  return redis.error_reply('LATE the command comes so late that this server may be replaced')
end`;

/**
 * Refuses a script that only reads at a server that became a replica, which refuses each command that may write. No hash has the field
 * `none`, so nothing is removed. A key of the script is used, because a cluster refuses a script with a missing key and one that exists
 * while their slot moves.
 */
const atPrimary = `
local w = redis.pcall('HDEL', KEYS[1], 'none')
if type(w) == 'table' and string.find(w.err, 'READONLY', 1, true) then return w end`;

/**
 * KEYS: meta, stream, channel, and the key of a publication. ARGV: life, body, new epoch, length, bytes, ttlMs, key ("" for none). The id of
 * an entry is its offset, and how many bytes of this epoch are before it. `b`: all bytes of the epoch. `f`: those before the first entry, or
 * fewer, so that an entry is only read when it is removed.
 */
const append = `
local m = redis.call('HMGET', KEYS[1], 'e', 'r', 'f')
local e = m[1]
local f = tonumber(m[3] or '0')
if not e or m[2] ~= ARGV[1] then -- no log, or one of an earlier life of the broker, whose end may be lost
  e, f = ARGV[3], 0
  redis.call('DEL', KEYS[1], KEYS[2])
  redis.call('HSET', KEYS[1], 'e', e, 'r', ARGV[1])
end
if ARGV[7] ~= '' then -- only of this epoch: what was published in an earlier one may be lost
  local p = redis.call('HMGET', KEYS[4], 'e', 's')
  if p[1] == e then return { e, p[2] } end
end
local n = string.format('%.0f', redis.call('HINCRBY', KEYS[1], 's', 1))
local b = redis.call('HINCRBY', KEYS[1], 'b', #ARGV[2])
local last = b - #ARGV[2]
redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[4], string.format('%s-%.0f', n, last), 'd', ARGV[2])
while f < last and b - f > tonumber(ARGV[5]) do
  local first = redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', 1)[1]
  local start = tonumber(string.match(first[1], '%d+$'))
  if start > f then f = start else
    redis.call('XDEL', KEYS[2], first[1])
    f = f + #first[2][2]
  end
end
redis.call('HSET', KEYS[1], 'f', string.format('%.0f', f))
redis.call('PEXPIRE', KEYS[2], ARGV[6])
redis.call('PEXPIRE', KEYS[1], ARGV[6] + 86400000) -- a node that missed nothing of a quiet log learns so for a day more
if ARGV[7] ~= '' then
  redis.call('HSET', KEYS[4], 'e', e, 's', n)
  redis.call('PEXPIRE', KEYS[4], 120000)
end
redis.call('PUBLISH', KEYS[3], '1L\\t' .. e .. '\\t' .. n .. '\\n' .. ARGV[2])
return { e, n }`;

/** KEYS: meta, stream. ARGV: life, after, length, bytes, new epoch ("" begins no log), ttlMs. A log of another life is none. */
const read = `${atPrimary}
local m = redis.call('HMGET', KEYS[1], 'e', 's', 'r')
if not m[1] or m[3] ~= ARGV[1] then
  if ARGV[5] == '' then return { '', '0', {} } end
  redis.call('DEL', KEYS[1], KEYS[2])
  redis.call('HSET', KEYS[1], 'e', ARGV[5], 'r', ARGV[1])
  m = { ARGV[5] }
end
if not m[2] then -- without entries, it is kept from the last read on
  if ARGV[5] ~= '' then redis.call('PEXPIRE', KEYS[1], ARGV[6] + 86400000) end
  return { m[1], '0', {} }
end
local page, bytes, after, count = {}, 0, ARGV[2], 1
local function isFull() return #page >= tonumber(ARGV[3]) or bytes >= tonumber(ARGV[4]) end
while count > 0 and not isFull() do -- twice as many each time, because their length is not known before
  local entries = redis.call('XRANGE', KEYS[2], string.format('%.0f', after + 1), '+', 'COUNT', count)
  count = #entries == count and count * 2 or 0
  for _, entry in ipairs(entries) do
    if isFull() then break end
    after = string.match(entry[1], '^%d+')
    page[#page + 1] = { after, entry[2][2] }
    bytes = bytes + #entry[2][2]
  end
end
return { m[1], m[2], page }`;

/** KEYS: a probe. Returns the errors of commands that the other scripts use, and leaves nothing. */
const probe = `
local missing = {}
local function try(...)
  local r = redis.pcall(...)
  if type(r) == 'table' and r.err then missing[#missing + 1] = select(1, ...) .. ': ' .. r.err end
end
local k = KEYS[1]
try('DEL', k)
for _, c in ipairs({ { 'HSET', k, 'a', '1' }, { 'HMGET', k, 'a' }, { 'HINCRBY', k, 'a', '1' }, { 'PEXPIRE', k, '1000' },
  { 'HDEL', k, 'a' }, { 'DEL', k } }) do try(unpack(c)) end
for _, c in ipairs({ { 'XADD', k, 'MAXLEN', '~', '1', '1', 'd', '' }, { 'XRANGE', k, '-', '+', 'COUNT', '1' },
  { 'XDEL', k, '1' }, { 'DEL', k } }) do
  try(unpack(c))
end
try('TIME')
try('PUBLISH', k, '')
return missing`;

const SCRIPTS = { append, read, probe };

export type ScriptName = keyof typeof SCRIPTS;
export const SCRIPT_NAMES = Object.keys(SCRIPTS) as ScriptName[];

/** Returns the source of a script. `isTimed`: whether the script has the end of a term as its last argument. */
export function sourceOf(script: ScriptName, isCluster: boolean, isTimed: boolean): string {
  const source = isTimed ? `${inTime}\n${SCRIPTS[script]}` : SCRIPTS[script];
  return isCluster ? source.replaceAll("'PUBLISH'", "'SPUBLISH'") : source;
}
