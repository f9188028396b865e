import { setImmediate as nextPass } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
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
  const turns = new LoopTurns(isGreedy, () => clock.ms);
  const work = (name: string, ms: number) => () => {
    clock.ms += ms;
    ran.push(name);
  };
  return { turns, ran, work };
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

  it('of greedy clients are one in a pass, or as many short ones as fit, and others come first', async () => {
    const { turns, ran, work } = start(({ networkKey }) => networkKey === 'greedy');
    const passes: number[][] = [];
    const count = (name: string) => ran.filter((one) => one === name).length;
    for (let number = 0; number < 6; number++) void turns.run(client('greedy'), work('greedy', 0.6));
    for (let number = 0; number < 4; number++) void turns.run(client('modest'), work('modest', 0.3));
    while (ran.length < 10) {
      passes.push([count('greedy'), count('modest')]);
      await nextPass();
    }
    // The first turn was taken at once.
    expect(passes).toEqual([
      [1, 0],
      [2, 4],
      [3, 4],
      [4, 4],
      [5, 4],
    ]);
    expect(ran.slice(0, 6)).toEqual(['greedy', ...Array<string>(4).fill('modest'), 'greedy']);
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
