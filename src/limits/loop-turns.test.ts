import { setImmediate as nextPass, setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { GreedyShare } from './greedy-share.js';
import { LoopTurns, type TurnClient } from './loop-turns.js';

const client = (networkKey: string, rateKey = networkKey, community = 1): TurnClient => ({
  community,
  networkKey,
  rateKey,
});

/** Work of a fixed length by a clock of our own, noted in the order in which it runs. */
function start(isGreedy?: (client: TurnClient) => boolean) {
  const clock = { ms: 0 };
  const ran: string[] = [];
  const now = () => clock.ms;
  const turns = new LoopTurns(isGreedy, new GreedyShare(now), now);
  const work = (name: string, ms: number) => () => {
    clock.ms += ms;
    ran.push(name);
  };
  return { turns, ran, work, clock };
}

describe('turns on the event loop', () => {
  it('are taken at once while nobody waits and the pass has time left', async () => {
    const { turns, ran, work } = start();
    void turns.run(client('a'), work('first', 0.4));
    void turns.run(client('a'), work('second', 0.4));
    expect(ran).toEqual(['first', 'second']);
  });

  it('of a pass take 1 ms together, whoever asks', async () => {
    const { turns, ran, work } = start();
    for (let number = 0; number < 20; number++) void turns.run(client(`n${number}`), work('x', 0.25));
    const passes: number[] = [];
    while (ran.length < 20) {
      passes.push(ran.length);
      await nextPass();
    }
    expect(passes).toEqual([4, 8, 12, 16]);
  });

  const isGreedy = ({ networkKey }: TurnClient) => networkKey === 'greedy';

  it('of greedy clients alone are one in a pass, or as many short ones as fit', async () => {
    const { turns, ran, work } = start(isGreedy);
    for (let number = 0; number < 4; number++) void turns.run(client('greedy'), work('greedy', 0.6));
    for (let number = 0; number < 8; number++) void turns.run(client('greedy'), work('short', 0.1));
    const passes: number[] = [];
    while (ran.length < 12) {
      passes.push(ran.length);
      await nextPass();
    }
    // The first turn was taken at once.
    expect(passes).toEqual([1, 2, 3, 4, 7, 10]);
  });

  it('of greedy clients come after others, and then rest nine times as long as they took', async () => {
    const { turns, ran, work, clock } = start(isGreedy);
    for (let number = 0; number < 3; number++) void turns.run(client('modest'), work('modest', 0.6));
    for (let number = 0; number < 3; number++) void turns.run(client('greedy'), work('greedy', 0.6));
    const passes = async () => {
      for (let number = 0; number < 10; number++) await nextPass();
    };
    await passes();
    expect(ran).toEqual(['modest', 'modest', 'modest', 'greedy']);
    clock.ms += 5.3;
    await sleep(10);
    expect(ran).toHaveLength(4);
    clock.ms += 0.2;
    await expect.poll(() => ran).toHaveLength(5);
    // Others never wait for the end of a rest.
    await turns.run(client('modest'), work('modest', 0.6));
    expect(ran).toHaveLength(6);
    // Nobody else is here any more.
    clock.ms += 2_000;
    await expect.poll(() => ran).toHaveLength(7);
  });

  it('of a burst of one network do not stand before another network', async () => {
    const { turns, ran, work } = start();
    for (let number = 0; number < 100; number++)
      void turns.run(client('flood', `address ${number}`), work('flood', 2));
    await turns.run(client('quiet'), work('quiet', 0.1));
    expect(ran.indexOf('quiet')).toBe(1);
  });

  it('go by what was used, not by their number', async () => {
    const { turns, ran, work } = start();
    const all = [
      ...Array.from({ length: 20 }, () => turns.run(client('long'), work('long', 4))),
      ...Array.from({ length: 20 }, () => turns.run(client('short'), work('short', 1))),
    ];
    await Promise.all(all);
    const longs = ran.slice(0, ran.lastIndexOf('short')).filter((name) => name === 'long');
    expect(longs.length).toBeLessThanOrEqual(6);
  });

  it('of one community do not stand before another community', async () => {
    const { turns, ran, work } = start();
    for (let number = 0; number < 100; number++)
      void turns.run(client(`n${number}`, `n${number}`, 1), work('flood', 2));
    await turns.run(client('n1', 'n1', 2), work('other', 0.1));
    expect(ran.indexOf('other')).toBe(1);
  });

  it('count work that is not measured here by its estimate', async () => {
    const { turns } = start();
    let begun = 0;
    for (let number = 0; number < 6; number++)
      void turns.wait(client(`n${number}`), 0.5).then(() => {
        begun += 1;
      });
    await Promise.resolve();
    expect(begun).toBe(2);
    await nextPass();
    expect(begun).toBe(4);
  });

  it('of one client keep their order, and an error is its own', async () => {
    const { turns, ran, work } = start();
    const failing = turns.run(client('a'), () => {
      work('fails', 3)();
      throw new Error('broken');
    });
    const all = [1, 2, 3].map((number) => turns.run(client('a'), work(`turn ${number}`, 3)));
    await expect(failing).rejects.toThrow('broken');
    await Promise.all(all);
    expect(ran).toEqual(['fails', 'turn 1', 'turn 2', 'turn 3']);
  });
});
