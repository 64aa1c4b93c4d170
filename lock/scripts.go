// This file holds the scripts that run inside Redis, one question each. Who asks, and how often, is the other files' affair.
//
// A lease's end is the server's affair alone: keys expire by themselves, and sharers by the server's TIME. Every script can be sent again with the same
// token, which go-redis does when a reply is lost. Where a script writes more than once, the write that a full Redis refuses comes first.

package lock

import "github.com/redis/go-redis/v9"

// luaMint gives the next fence: never lower than one given before, even if the counter was lost (time has passed) or the clock set back (there is a counter).
// %.0f, because Lua would print 1.7e+15.
const luaMint = `
local function mint(counter, floor)
  local t = redis.call('TIME')
  local last = tonumber(redis.call('GET', counter) or 0) or 0
  local fence = string.format('%.0f', math.max(t[1] * 1000000 + t[2], last + 1, tonumber(floor) + 1))
  redis.call('SET', counter, fence, 'PX', 86400000)
  return fence
end
`

// luaShare keeps a set of sharers: it drops the ones whose lease has ended, and keeps the set for as long as its longest lease.
const luaShare = `
local function clock()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end
local function expire(sharers, now)
  redis.call('ZREMRANGEBYSCORE', sharers, '-inf', string.format('%.0f', now))
end
local function share(sharers, token, now, ttl)
  redis.call('ZADD', sharers, string.format('%.0f', now + ttl * 1000), token)
  if redis.call('PTTL', sharers) < tonumber(ttl) then redis.call('PEXPIRE', sharers, ttl) end
end
local function left(sharers, now)
  local first = redis.call('ZRANGE', sharers, 0, 0, 'WITHSCORES')
  return first[2] and math.ceil((first[2] - now) / 1000) or 0
end
`

// luaWait marks that someone waits to be woken; luaWake wakes who waits. The mark lasts longer than the time between two questions of a waiter.
const (
	luaWait = `
local function wait(waiters)
  redis.call('SET', waiters, '1', 'PX', 10000)
end
`
	luaWake = `
local function wake(waiters, channel)
  if redis.call('DEL', waiters) == 1 then redis.call('PUBLISH', channel, '') end
end
`
)

// The scripts that take a lease. ARGV: token, ttl in ms, floor, 1 if the caller waits. They return state, fence, ms left of what is in the way.
var (
	// KEYS: holder, fence, waiters, and for a Once: done.
	scriptMutex = redis.NewScript(luaMint + luaWait + `
if KEYS[4] and redis.call('EXISTS', KEYS[4]) == 1 then return {2, '0', 0} end
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then
  if ARGV[4] == '1' then wait(KEYS[3]) end
  return {0, '0', redis.call('PTTL', KEYS[1])}
end
local fence = mint(KEYS[2], ARGV[3])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {1, fence, 0}
`)

	// KEYS: holder, fence, waiters, sharers, intent. A waiting writer's intent keeps new readers out; it is a lease that each question renews.
	scriptWrite = redis.NewScript(luaMint + luaWait + luaShare + `
local now = clock()
expire(KEYS[4], now)
local holder = redis.call('GET', KEYS[1])
local readers = redis.call('ZCARD', KEYS[4])
if (holder and holder ~= ARGV[1]) or readers > 0 then
  if ARGV[4] == '1' then
    wait(KEYS[3])
    local intent = redis.call('GET', KEYS[5])
    if not intent or intent == ARGV[1] then redis.call('SET', KEYS[5], ARGV[1], 'PX', ARGV[2]) end
  end
  return {0, '0', readers > 0 and left(KEYS[4], now) or redis.call('PTTL', KEYS[1])}
end
local fence = mint(KEYS[2], ARGV[3])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
if redis.call('GET', KEYS[5]) == ARGV[1] then redis.call('DEL', KEYS[5]) end
return {1, fence, 0}
`)

	// KEYS: holder, fence, waiters, sharers, intent, upgrade.
	scriptRead = redis.NewScript(luaMint + luaWait + luaShare + `
local now = clock()
expire(KEYS[4], now)
if not redis.call('ZSCORE', KEYS[4], ARGV[1]) then
  for _, key in ipairs({KEYS[1], KEYS[6], KEYS[5]}) do
    local remains = redis.call('PTTL', key)
    if remains ~= -2 then
      if ARGV[4] == '1' then wait(KEYS[3]) end
      return {0, '0', remains}
    end
  end
end
local fence = mint(KEYS[2], ARGV[3])
share(KEYS[4], ARGV[1], now, ARGV[2])
return {1, fence, 0}
`)

	// KEYS: sharers, fence, waiters. ARGV[5]: how many may share.
	scriptPermit = redis.NewScript(luaMint + luaWait + luaShare + `
local now = clock()
expire(KEYS[1], now)
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) and redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[5]) then
  if ARGV[4] == '1' then wait(KEYS[3]) end
  return {0, '0', left(KEYS[1], now)}
end
local fence = mint(KEYS[2], ARGV[3])
share(KEYS[1], ARGV[1], now, ARGV[2])
return {1, fence, 0}
`)

	// KEYS: holder, fence, waiters, sharers, upgrade. A reader that waits to be upgraded keeps new readers out; writers wait for it since it reads.
	scriptUpgrade = redis.NewScript(luaMint + luaWait + luaShare + `
local now = clock()
expire(KEYS[4], now)
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  if not redis.call('ZSCORE', KEYS[4], ARGV[1]) then return {4, '0', 0} end
  local other = redis.call('GET', KEYS[5])
  if other and other ~= ARGV[1] then return {3, '0', 0} end
  if redis.call('ZCARD', KEYS[4]) > 1 then
    redis.call('SET', KEYS[5], ARGV[1], 'PX', ARGV[2])
    wait(KEYS[3])
    return {0, '0', left(KEYS[4], now)}
  end
end
local fence = mint(KEYS[2], ARGV[3])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('DEL', KEYS[4], KEYS[5])
return {1, fence, 0}
`)
)

// The scripts on a lease that is held. They return 1, or 0 when the lease is gone.
var (
	// KEYS: the holder keys of all leases, then their sharers; ARGV: their tokens, then their ttls. Returns a list. Which of the two a lease is stands in
	// Redis, so that a renewal that meets an upgrade on its way is right either way. One MGET for all halves the time of a round.
	scriptRenew = redis.NewScript(luaShare + `
local n = #ARGV / 2
local holders = redis.call('MGET', unpack(KEYS, 1, n))
local kept = {}
for i = 1, n do
  kept[i] = 0
  if holders[i] == ARGV[i] then
    kept[i] = redis.call('PEXPIRE', KEYS[i], ARGV[n + i])
  elseif not holders[i] then
    local ends = redis.call('ZSCORE', KEYS[n + i], ARGV[i])
    local now = ends and clock()
    if ends and tonumber(ends) > now then
      share(KEYS[n + i], ARGV[i], now, ARGV[n + i])
      kept[i] = 1
    end
  end
end
return kept
`)

	// KEYS: holder, waiters, sharers. ARGV: token, channel.
	scriptLeave = redis.NewScript(luaWake + luaShare + `
if redis.call('GET', KEYS[1]) == ARGV[1] then
  if redis.call('DEL', KEYS[1], KEYS[2]) == 2 then redis.call('PUBLISH', ARGV[2], '') end
  return 1
end
local ends = redis.call('ZSCORE', KEYS[3], ARGV[1])
if not ends then return 0 end
redis.call('ZREM', KEYS[3], ARGV[1])
wake(KEYS[2], ARGV[2])
return tonumber(ends) > clock() and 1 or 0
`)

	// KEYS: intent, upgrade, waiters. ARGV: token, channel.
	scriptWithdraw = redis.NewScript(luaWake + `
for i = 1, 2 do
  if redis.call('GET', KEYS[i]) == ARGV[1] then
    redis.call('DEL', KEYS[i])
    wake(KEYS[3], ARGV[2])
  end
end
return 1
`)

	// KEYS: holder, sharers, waiters. ARGV: token, ttl, channel.
	scriptDowngrade = redis.NewScript(luaWake + luaShare + `
local now = clock()
if redis.call('GET', KEYS[1]) == ARGV[1] then
  share(KEYS[2], ARGV[1], now, ARGV[2])
  redis.call('DEL', KEYS[1])
  wake(KEYS[3], ARGV[3])
  return 1
end
local ends = redis.call('ZSCORE', KEYS[2], ARGV[1])
return ends and tonumber(ends) > now and 1 or 0
`)

	// KEYS: holder, sharers. ARGV: new token, ttl, token before.
	scriptAdopt = redis.NewScript(luaShare + `
local now = clock()
local holder = redis.call('GET', KEYS[1])
if holder == ARGV[3] or holder == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return 1
end
local ends = redis.call('ZSCORE', KEYS[2], ARGV[3]) or redis.call('ZSCORE', KEYS[2], ARGV[1])
if not ends or tonumber(ends) <= now then return 0 end
share(KEYS[2], ARGV[1], now, ARGV[2])
redis.call('ZREM', KEYS[2], ARGV[3])
return 1
`)

	// KEYS: holder, done, waiters. ARGV: token, window in ms, channel.
	scriptSettle = redis.NewScript(luaWake + `
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return redis.call('GET', KEYS[2]) == ARGV[1] and 1 or 0
end
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
redis.call('DEL', KEYS[1])
wake(KEYS[3], ARGV[3])
return 1
`)
)

// The scripts of what is counted and not leased.
var (
	// KEYS: bucket. ARGV: events, per µs. Returns 0, or the µs until the next event. A bucket that is not there is full; a clock set back fills nothing.
	scriptSpend = redis.NewScript(luaShare + `
local now = clock()
local n, per = tonumber(ARGV[1]), tonumber(ARGV[2])
local bucket = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local at = tonumber(bucket[2] or now) or now
local tokens = math.min(n, (tonumber(bucket[1] or n) or n) + math.max(0, now - at) * n / per)
local wait = 0
if tokens < 1 - 1e-9 then
  wait = math.ceil((1 - tokens) * per / n)
else
  tokens = tokens - 1
end
redis.call('HSET', KEYS[1], 'tokens', string.format('%.17g', tokens), 'at', string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.ceil((n - tokens) * per / n / 1000) + 1))
return string.format('%.0f', wait)
`)

	// KEYS: average. ARGV: x, ms to keep. The total comes first: only it can be refused, when it overflows.
	scriptAdd = redis.NewScript(`
redis.call('HINCRBYFLOAT', KEYS[1], 'total', ARGV[1])
redis.call('HINCRBY', KEYS[1], 'count', 1)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
`)

	// KEYS: average. Returns count and total.
	scriptMean = redis.NewScript(`
return redis.call('HMGET', KEYS[1], 'count', 'total')
`)
)
