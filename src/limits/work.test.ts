import { describe, expect, it } from 'vitest';
import { GREEDY_MS, OFFENCES_BURST, REFUSED_MS, WORK_BURST_MS, WORK_MS_PER_SECOND, Work } from './work.js';

const from = (rateKey: string, networkKey = rateKey) => ({ rateKey, networkKey });

function started() {
  const clock = { ms: 0 };
  return { clock, work: new Work(() => clock.ms) };
}

describe('work that clients cause (I18)', () => {
  it('an address is served until its burst is used, then waits until the debt is paid', () => {
    const { clock, work } = started();
    const client = from('192.0.2.1');
    work.charge(client, WORK_BURST_MS);
    expect(work.waitMs(client)).toBe(0);
    work.charge(client, WORK_MS_PER_SECOND);
    expect(work.waitMs(client)).toBe(1_000);
    clock.ms += 1_000;
    expect(work.waitMs(client)).toBe(0);
  });

  it('an address does not pay for another one', () => {
    const { work } = started();
    work.charge(from('192.0.2.1'), 100_000);
    expect(work.waitMs(from('192.0.2.2'))).toBe(0);
  });

  it('all addresses of a network share the budget of a few addresses', () => {
    const { work } = started();
    for (let host = 0; host < 100; host += 1)
      work.charge(from(`2001:db8:1:${host}::/64`, '2001:db8:1::/48'), WORK_BURST_MS / 10);
    expect(work.waitMs(from('2001:db8:1:ffff::/64', '2001:db8:1::/48'))).toBeGreaterThan(0);
    expect(work.waitMs(from('2001:db8:2:1::/64', '2001:db8:2::/48'))).toBe(0);
  });

  it('a client is greedy by what it uses of the event loop, though it is far from debt', () => {
    const { clock, work } = started();
    const [flood, person, reader] = [from('192.0.2.1'), from('192.0.2.2'), from('192.0.2.3')];
    for (let tenths = 0; tenths < 50; tenths += 1) {
      clock.ms += 100;
      work.charge(flood, 8);
      work.charge(person, 1.5);
      work.chargeQuery(reader, 8);
    }
    expect([flood, person, reader].map((client) => work.isGreedy(client))).toEqual([true, false, false]);
    expect(work.waitMs(flood)).toBe(0);
    expect(work.waitMs(reader)).toBe(0);
    clock.ms += 30_000;
    expect(work.isGreedy(flood)).toBe(false);
  });

  it('many addresses of a network are greedy together', () => {
    const { work } = started();
    for (let host = 0; host < 100; host += 1)
      work.charge(from(`2001:db8:1:${host}::/64`, '2001:db8:1::/48'), GREEDY_MS / 20);
    expect(work.isGreedy(from('2001:db8:1:ffff::/64', '2001:db8:1::/48'))).toBe(true);
    expect(work.isGreedy(from('2001:db8:2:1::/64', '2001:db8:2::/48'))).toBe(false);
  });

  it('a debt is bounded', () => {
    const { clock, work } = started();
    const client = from('192.0.2.1');
    work.charge(client, 1e12);
    clock.ms += 60_000;
    expect(work.waitMs(client)).toBe(0);
  });

  it('connections of an address that keeps offending are closed, then refused, then accepted again', () => {
    const { clock, work } = started();
    const client = from('192.0.2.1');
    expect(work.offend(client, OFFENCES_BURST)).toBe(false);
    expect(work.offend(client)).toBe(true);
    expect(work.refusedMs(client)).toBe(0);
    expect(work.offend(client, OFFENCES_BURST + 1)).toBe(true);
    expect(work.offend(client, OFFENCES_BURST + 1)).toBe(true);
    expect(work.refusedMs(client)).toBe(REFUSED_MS);
    expect(work.refusedMs(from('192.0.2.2'))).toBe(0);
    clock.ms += REFUSED_MS;
    expect(work.refusedMs(client)).toBe(0);
  });

  it('a network of many addresses may commit offences of a few, then all of it is refused', () => {
    const { clock, work } = started();
    const address = (host: number) => from(`2001:db8:1:${host}::/64`, '2001:db8:1::/48');
    const newcomer = from('2001:db8:1:ffff::/64', '2001:db8:1::/48');
    let closed = 0;
    for (let host = 0; host < 12; host += 1) {
      expect(work.refusedMs(newcomer)).toBe(0);
      if (work.offend(address(host), OFFENCES_BURST) || work.offend(address(host), 0)) closed += 1;
    }
    // None of them has exceeded what one address may do.
    expect(closed).toBe(2);
    for (let host = 12; host < 20; host += 1) work.offend(address(host), OFFENCES_BURST);
    expect(work.refusedMs(newcomer)).toBe(REFUSED_MS);
    expect(work.refusedMs(from('2001:db8:2:1::/64', '2001:db8:2::/48'))).toBe(0);
    clock.ms += REFUSED_MS;
    expect(work.refusedMs(newcomer)).toBe(0);
  });

  it('offences are forgiven with time', () => {
    const { clock, work } = started();
    const client = from('192.0.2.1');
    for (let times = 0; times < 10; times += 1) {
      expect(work.offend(client, OFFENCES_BURST)).toBe(false);
      clock.ms += OFFENCES_BURST * 1_000;
    }
  });
});
