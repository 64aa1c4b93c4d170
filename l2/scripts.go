// What happens inside Redis: one script for each step, each atomic, each one trip. When they run, and what a reply means, stands in claim.go and
// invalidate.go.
//
// Rules for all of them:
//   - A key can hold anything: another program's type, a value without an end. Reads are pcalls, and what is not ours counts as absent and is overwritten.
//   - A full Redis refuses a script's first write only, since what follows belongs to work that has begun. So the first write is the one that a full Redis
//     may refuse, and where nothing must be refused a DEL comes first.
//   - Fences are decimal numbers of 16 digits, so that strings compare as numbers do. They stay below 2^53, where Lua's numbers are exact.
//   - A fence carries a mark, "d", once no load is under way with it any more: a renewal that was sent before must not bring its claim back.
//   - Every key gets an end.

package l2

import "github.com/redis/go-redis/v9"

// The keys of one entry, in this order: KEYS[1] value, KEYS[2] claim, KEYS[3] fence, KEYS[4] outcome.

// luaHeader reads the plain header of an envelope: its number, and for how many milliseconds of the key's life it is stale.
const luaHeader = `
local function header(envelope)
  if type(envelope) ~= 'string' then return nil end
  local fence, again, stale = string.match(string.sub(envelope, 1, 49), '^1fe1(%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d)(%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d)(%d+)$')
  if not (stale and fence == again and fence < '9000000000000000' and #stale == 13) then return nil end
  return fence, tonumber(stale)
end
`

// luaMint finds the next fence. It rises even if the last one was lost, because time has passed meanwhile, and even if the clock was set back, because the
// last one is there or the caller knows it.
const luaMint = `
local function mint(floor)
  local time = redis.call('TIME')
  local last = redis.pcall('GET', KEYS[3])
  last = type(last) == 'string' and tonumber(string.sub(last, 1, 16)) or 0
  if not (last >= 0 and last < 9e15) then last = 0 end
  return string.format('%016.0f', math.max(time[1] * 1000000 + time[2], last + 1, floor + 1))
end
`

// luaHolder reads the claim: token, fence, whether anyone waits, flights.
const luaHolder = `
local function holder()
  local held = redis.pcall('HMGET', KEYS[2], 't', 'f', 'w', 'n')
  if not (held[1] and held[2] and #held[2] == 16 and string.match(held[2], '^[0-8]%d+$')) then return nil end
  return held[1], held[2], held[3], held[4] or ''
end
`

// The states that scriptClaim answers with; onefill.ClaimState in the same order.
var (
	// scriptClaim reads or claims. ARGV: token, ttl in ms, have, waited, floor, flights, ms to keep the fence. It returns state, fence, ms left, envelope,
	// flights.
	//
	// Without a token it holds nobody off: it grants the fence of a load that is under way, which then need not be the only one, or mints one.
	//
	// A failure comes before a claim that is held: those who waited for the load that failed have their answer, also when a latecomer loads already.
	scriptClaim = redis.NewScript(luaHeader + luaMint + luaHolder + `
local value = redis.pcall('GET', KEYS[1])
local fence, stale = header(value)
local old = ''
if fence and fence > ARGV[3] then
  local life = redis.call('PTTL', KEYS[1])
  if life > stale then return {1, fence, life - stale, value, ''} end
  if life > 0 then old = value end
end
if ARGV[4] ~= '0000000000000000' then
  local outcome = redis.pcall('GET', KEYS[4])
  if header(outcome) == ARGV[4] then return {2, ARGV[4], 0, outcome, ''} end
end
if ARGV[1] == '' then
  local last = redis.pcall('GET', KEYS[3])
  if type(last) ~= 'string' or not string.match(last, '^[0-8]%d+$') or #last ~= 16 or last <= ARGV[3] or last <= ARGV[5] then
    last = mint(tonumber(ARGV[5]))
    redis.call('SET', KEYS[3], last, 'PX', ARGV[7])
  end
  return {4, last, 0, old, ''}
end
local token, held, waits, flights = holder()
if token == ARGV[1] then return {4, held, 0, old, ''} end
if token then
  local left = redis.call('PTTL', KEYS[2])
  if left > 0 then
    if not waits then redis.pcall('HSET', KEYS[2], 'w', '1') end
    return {3, held, left, old, flights}
  end
end
local minted = mint(tonumber(ARGV[5]))
redis.call('SET', KEYS[3], minted, 'PX', ARGV[7])
redis.call('DEL', KEYS[2])
redis.call('HSET', KEYS[2], 't', ARGV[1], 'f', minted, 'n', ARGV[6])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return {4, minted, 0, old, ''}
`)

	// scriptFill stores what a load has made and releases the claim. ARGV: token, fence, life in ms (0: not to be stored), envelope, ms for which those
	// who waited find it as outcome (0: not at all), ms to keep the fence. It returns 1, also where it has done so before; 0 where the fence is not the
	// key's last; 2 where someone waits for the outcome and the envelope is missing: then nothing has happened.
	scriptFill = redis.NewScript(luaHolder + `
local token, _, waits = holder()
local mine = token == ARGV[1]
local fence = redis.pcall('GET', KEYS[3])
local reply = 0
if fence == ARGV[2] .. 'd' then
  reply = 1
elseif fence == ARGV[2] then
  reply = 1
  if ARGV[3] ~= '0' then
    local result = redis.pcall('SET', KEYS[1], ARGV[4], 'PX', ARGV[3])
    if type(result) == 'table' and result.err then
      reply = result
      redis.call('DEL', KEYS[1])
    end
  elseif mine and waits and ARGV[4] == '' and ARGV[5] ~= '0' then
    return 2
  else
    redis.call('DEL', KEYS[1])
  end
  redis.call('DEL', KEYS[4])
  redis.call('SET', KEYS[3], ARGV[2] .. 'd', 'PX', ARGV[6])
  if mine and waits and ARGV[4] ~= '' and ARGV[5] ~= '0' then redis.pcall('SET', KEYS[4], ARGV[4], 'PX', ARGV[5]) end
end
if mine then
  redis.call('DEL', KEYS[2])
  if waits then redis.call('PUBLISH', KEYS[2], '') end
end
return reply
`)

	// scriptAbandon releases the claim and leaves an envelope that says why to those who waited. ARGV: token, envelope ('' for none), its life in ms, ms
	// to keep the fence. It returns whether the claim was there.
	scriptAbandon = redis.NewScript(luaHolder + `
local token, fence, waits = holder()
if token ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[2])
if redis.pcall('GET', KEYS[3]) == fence then redis.call('SET', KEYS[3], fence .. 'd', 'PX', ARGV[4]) end
if waits then
  if ARGV[2] ~= '' then redis.pcall('SET', KEYS[4], ARGV[2], 'PX', ARGV[3]) end
  redis.call('PUBLISH', KEYS[2], '')
end
return 1
`)

	// scriptRenew extends the claim and its fence, and takes the claim back where it vanished and nobody was given another since. Those who wait are woken
	// where the flights have changed. ARGV: token, fence, ttl in ms, flights, ms to keep the fence. It returns whether the claim is held.
	scriptRenew = redis.NewScript(luaHolder + `
local token, _, waits, flights = holder()
if token and token ~= ARGV[1] or redis.pcall('GET', KEYS[3]) ~= ARGV[2] then return 0 end
if not token then
  redis.call('DEL', KEYS[2])
  redis.pcall('HSET', KEYS[2], 't', ARGV[1], 'f', ARGV[2], 'n', ARGV[4])
elseif flights ~= ARGV[4] then
  redis.pcall('HSET', KEYS[2], 'n', ARGV[4])
  if waits then redis.call('PUBLISH', KEYS[2], '') end
end
redis.call('PEXPIRE', KEYS[3], ARGV[5])
return redis.call('PEXPIRE', KEYS[2], ARGV[3])
`)

	// scriptInvalidate drops what is there, mints a fence that refuses every load under way, and tells the clusters. With an envelope (a Set) it stores that,
	// with the number after the fence. ARGV: floor, ms to keep the fence, channel, message ('' for none), life in ms, envelope ('' for none). It returns the
	// fence.
	//
	// If not even the fence can be stored, none is left: then too every load under way is refused. A value that a full Redis refuses is not there, no more.
	scriptInvalidate = redis.NewScript(luaMint + luaHolder + `
local token, _, waits = holder()
local minted = mint(tonumber(ARGV[1]))
local last = minted
local stored = nil
if ARGV[6] ~= '' then
  last = string.format('%016.0f', tonumber(minted) + 1)
  stored = redis.pcall('SET', KEYS[1], string.sub(ARGV[6], 1, 4) .. last .. last .. string.sub(ARGV[6], 37), 'PX', ARGV[5])
end
if stored and not stored.err then
  redis.call('DEL', KEYS[2], KEYS[4])
else
  redis.call('DEL', KEYS[1], KEYS[2], KEYS[4])
end
local kept = redis.pcall('SET', KEYS[3], last .. 'd', 'PX', ARGV[2])
if kept.err then redis.call('DEL', KEYS[3]) end
if ARGV[4] ~= '' then redis.call('PUBLISH', ARGV[3], string.sub(ARGV[4], 1, 5) .. minted .. string.sub(ARGV[4], 22)) end
if token and waits then redis.call('PUBLISH', KEYS[2], '') end
return minted
`)

	// scriptProbe finds out whether Redis answers and can be written to.
	scriptProbe = redis.NewScript(`
redis.call('SET', KEYS[1], '', 'PX', 1000)
return 1
`)

	// scriptPublish publishes without a key. ARGV: channel, message.
	scriptPublish = redis.NewScript(`
return redis.call('PUBLISH', ARGV[1], ARGV[2])
`)
)
