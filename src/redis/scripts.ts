/**
 * The Lua scripts. Each runs as one step of Redis. All keys and channels are in `KEYS`, because some brokers refuse others. `PUBLISH` is
 * replaced by `SPUBLISH` for a cluster.
 */

/** Refuses a script that runs after the end of the reign, which is the last of ARGV, in microseconds of the server's clock. */
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

/** KEYS: meta, stream, channel, and the key of a publication. ARGV: body, life, new epoch, length, ttlMs, key ("" for none). */
const append = `
local m = redis.call('HMGET', KEYS[1], 'e', 'r')
local e = m[1]
if not e or m[2] ~= ARGV[2] then -- no log, or one of an earlier life of the broker, whose end may be lost
  e = ARGV[3]
  redis.call('DEL', KEYS[1], KEYS[2])
  redis.call('HSET', KEYS[1], 'e', e, 'r', ARGV[2])
end
if ARGV[6] ~= '' then -- only of this epoch: what was published in an earlier one may be lost
  local p = redis.call('HMGET', KEYS[4], 'e', 's')
  if p[1] == e then return { e, p[2] } end
end
local n = string.format('%.0f', redis.call('HINCRBY', KEYS[1], 's', 1))
redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[4], n, 'd', ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[5])
redis.call('PEXPIRE', KEYS[1], ARGV[5] + 86400000) -- a node that missed nothing of a quiet log learns so for a day more
if ARGV[6] ~= '' then
  redis.call('HSET', KEYS[4], 'e', e, 's', n)
  redis.call('PEXPIRE', KEYS[4], 120000)
end
redis.call('PUBLISH', KEYS[3], '1L\\t' .. e .. '\\t' .. n .. '\\n' .. ARGV[1])
return { e, n }`;

/** KEYS: meta, stream. ARGV: after, life, limit, new epoch ("" begins no log), ttlMs. A log of another life is none. */
const read = `${atPrimary}
local m = redis.call('HMGET', KEYS[1], 'e', 's', 'r')
if not m[1] or m[3] ~= ARGV[2] then
  if ARGV[4] == '' then return { '', '0', {} } end
  redis.call('DEL', KEYS[1], KEYS[2])
  redis.call('HSET', KEYS[1], 'e', ARGV[4], 'r', ARGV[2])
  m = { ARGV[4] }
end
if not m[2] then -- without entries, it is kept from the last read on
  if ARGV[4] ~= '' then redis.call('PEXPIRE', KEYS[1], ARGV[5] + 86400000) end
  return { m[1], '0', {} }
end
if ARGV[3] == '0' then return { m[1], m[2], {} } end
return { m[1], m[2], redis.call('XRANGE', KEYS[2], '(' .. ARGV[1], '+', 'COUNT', ARGV[3]) }`;

/**
 * KEYS: members, channel. ARGV: id, as ("" leaves). The first version of a roster is the broker's time in microseconds, so that a later
 * roster of the topic has greater ones. \`%.0f\`, because Lua writes 16 digits as \`1.79e+15\`.
 */
const put = `
if ARGV[2] == '' and redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then return 0 end
if redis.call('HEXISTS', KEYS[1], '') == 0 then
  local t = redis.call('TIME')
  redis.call('HSET', KEYS[1], '', t[1] .. string.format('%06d', t[2]))
end
if ARGV[2] ~= '' then redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) end
local v = string.format('%.0f', redis.call('HINCRBY', KEYS[1], '', 1))
redis.call('PEXPIRE', KEYS[1], 86400000)
redis.call('PUBLISH', KEYS[2], (ARGV[2] == '' and '1l' or '1j') .. '\\t' .. v .. '\\t' .. ARGV[1] .. '\\n' .. ARGV[2])
if redis.call('HLEN', KEYS[1]) == 1 then redis.call('DEL', KEYS[1]) end
return 1`;

/** KEYS: members. Returns fields and values. */
const list = `${atPrimary}
return redis.call('HGETALL', KEYS[1])`;

/** KEYS: nodes. ARGV: incarnation, leaseMs. */
const enter = `
local t = redis.call('TIME')
redis.call('ZADD', KEYS[1], t[1] * 1000 + math.floor(t[2] / 1000) + ARGV[2], ARGV[1])
return 1`;

/** KEYS: nodes, dead. ARGV: incarnation, leaseMs, 1 if the lease is given up. */
const beat = `
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
if ARGV[3] == '1' then redis.call('ZADD', KEYS[1], 'XX', now - 1, ARGV[1]) end
local was = redis.call('ZSCORE', KEYS[1], ARGV[1])
local mine = was and tonumber(was) >= now
if mine then redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1]) end
for _, n in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '(' .. now)) do
  redis.call('ZREM', KEYS[1], n)
  redis.call('ZADD', KEYS[2], now, n)
end
if not mine then return { 0 } end -- it was given up: the node returns as its next incarnation, and puts all its members again
local d = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, 1)[1]
if d then redis.call('ZADD', KEYS[2], now + ARGV[2], d) end -- this node reaps it. If this node dies or fails, another does after leaseMs
return { 1, redis.call('ZRANGE', KEYS[1], 0, -1), d or '' }`;

/**
 * Removes some members of an incarnation. KEYS: members, channel. ARGV: incarnation, cursor. Returns the next cursor. At most about 200
 * for each call, because 10,000 in one script block Redis for 190 ms.
 */
const reap = `
local r = redis.call('HSCAN', KEYS[1], ARGV[2], 'MATCH', ARGV[1] .. '.*', 'COUNT', 200)
for i = 1, #r[2], 2 do
  if redis.call('HDEL', KEYS[1], r[2][i]) == 1 then
    local v = string.format('%.0f', redis.call('HINCRBY', KEYS[1], '', 1))
    redis.call('PUBLISH', KEYS[2], '1l\\t' .. v .. '\\t' .. r[2][i] .. '\\n')
  end
end
if redis.call('HLEN', KEYS[1]) == 1 and redis.call('HEXISTS', KEYS[1], '') == 1 then redis.call('DEL', KEYS[1]) end
return r[1]`;

/** KEYS: a probe. Returns the errors of commands that the other scripts use, and leaves nothing. */
const probe = `
local missing = {}
local function try(...)
  local r = redis.pcall(...)
  if type(r) == 'table' and r.err then missing[#missing + 1] = select(1, ...) .. ': ' .. r.err end
end
local k = KEYS[1]
try('DEL', k)
for _, c in ipairs({ { 'HSET', k, 'a', '1' }, { 'HMGET', k, 'a' }, { 'HINCRBY', k, 'a', '1' }, { 'HEXISTS', k, 'a' }, { 'HLEN', k },
  { 'HSCAN', k, '0' }, { 'HGETALL', k }, { 'PEXPIRE', k, '1000' }, { 'HDEL', k, 'a' }, { 'DEL', k } }) do try(unpack(c)) end
for _, c in ipairs({ { 'XADD', k, 'MAXLEN', '~', '1', '1', 'd', '' }, { 'XRANGE', k, '(0', '+', 'COUNT', '1' }, { 'DEL', k } }) do
  try(unpack(c))
end
for _, c in ipairs({ { 'ZADD', k, '1', 'a' }, { 'ZSCORE', k, 'a' }, { 'ZRANGEBYSCORE', k, '-inf', '(0', 'LIMIT', '0', '1' },
  { 'ZRANGE', k, '0', '-1' }, { 'ZREM', k, 'a' }, { 'DEL', k } }) do try(unpack(c)) end
for _, c in ipairs({ { 'SADD', k, 'a' }, { 'SMEMBERS', k }, { 'SREM', k, 'a' }, { 'DEL', k } }) do try(unpack(c)) end
try('TIME')
try('PUBLISH', k, '')
return missing`;

const SCRIPTS = { append, read, put, list, enter, beat, reap, probe };

export type ScriptName = keyof typeof SCRIPTS;
export const SCRIPT_NAMES = Object.keys(SCRIPTS) as ScriptName[];

/** For which servers a script is. */
export interface ScriptKind {
  readonly isCluster: boolean;
  /** Whether the script has the end of a reign as its last argument. */
  readonly isTimed: boolean;
}

/** Returns the source of a script. */
export function sourceOf(script: ScriptName, { isCluster, isTimed }: ScriptKind): string {
  const source = isTimed ? `${inTime}\n${SCRIPTS[script]}` : SCRIPTS[script];
  return isCluster ? source.replaceAll("'PUBLISH'", "'SPUBLISH'") : source;
}
