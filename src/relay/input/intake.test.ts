import { setTimeout as sleep, setImmediate as turn } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { GreedyShare } from '../../limits/greedy-share.js';
import { Intake, type Place } from './intake.js';

/**
 * Clients with waiting frames, in an intake that records whose frame is processed. With `frameMs` each frame
 * takes that long, by a clock of our own.
 */
function started(frameMs?: number) {
  let ms = 0;
  const now = () => ms;
  const intake = frameMs === undefined ? new Intake() : new Intake(new GreedyShare(now), now);
  const order: string[] = [];
  const client = (name: string, frames: number, network: string, community = 1, nextBytes = 300): Place => {
    let left = frames;
    const place = intake.join(
      {
        nextBytes,
        isGreedy: name === 'greedy',
        takeFrame: () => {
          if (left === 0) return false;
          left -= 1;
          ms += frameMs ?? 0;
          order.push(name);
          return left > 0;
        },
      },
      community,
      network,
    );
    return place;
  };
  const finish = async (frames: number) => {
    while (order.length < frames) await turn();
    return order;
  };
  const pass = (passedMs: number) => {
    ms += passedMs;
  };
  return { client, finish, order, pass };
}

describe('frames that wait', () => {
  it('of a hundred connections of one network get no more than those of one of another', async () => {
    const { client, finish } = started();
    const many = Array.from({ length: 100 }, () => client('many', 10, '192.0.2.1'));
    const one = client('one', 50, '192.0.2.2');
    for (const place of [...many, one]) place.add();
    const order = await finish(1_050);
    expect(order.slice(0, 100).filter((name) => name === 'one')).toHaveLength(50);
  });

  it('of one network are taken from its connections round-robin', async () => {
    const { client, finish } = started();
    const names = ['a', 'b', 'c'];
    for (const place of names.map((name) => client(name, 3, '192.0.2.1'))) place.add();
    expect(await finish(9)).toEqual([...names, ...names, ...names]);
  });

  it('of a busy community leave the others every second place', async () => {
    const { client, finish } = started();
    const busy = Array.from({ length: 50 }, (_, host) => client('busy', 10, `192.0.2.${host}`));
    const quiet = client('quiet', 20, '198.51.100.1', 2);
    for (const place of [...busy, quiet]) place.add();
    const order = await finish(520);
    expect(order.slice(0, 40).filter((name) => name === 'quiet')).toHaveLength(20);
  });

  it('are taken by weight: large frames of many networks do not delay small ones', async () => {
    const { client, finish } = started();
    const large = Array.from({ length: 20 }, (_, host) => client('large', 3, `192.0.2.${host}`, 1, 90_000));
    const small = client('small', 20, '198.51.100.1');
    for (const place of [...large, small]) place.add();
    const order = await finish(80);
    expect(order.slice(0, 20)).toEqual(Array<string>(20).fill('small'));
    expect(order).toHaveLength(80);
  });

  it('of greedy clients alone are taken in short slices', async () => {
    const { client, order } = started(0.2);
    client('greedy', 7, '192.0.2.1').add();
    const passes: number[] = [];
    while (order.length < 7) {
      await turn();
      passes.push(order.length);
    }
    expect(passes).toEqual([2, 4, 6, 7]);
  });

  it('of greedy clients come last in a pass, and then rest nine times as long as they took', async () => {
    const { client, order, pass } = started(0.2);
    for (const place of [client('greedy', 7, '192.0.2.1'), client('modest', 8, '192.0.2.2')]) place.add();
    await turn();
    expect(order).toEqual([...Array<string>(5).fill('modest'), 'greedy', 'greedy']);
    await turn();
    // Modest ones do not rest.
    expect(order.slice(7)).toEqual(Array<string>(3).fill('modest'));
    pass(2.9);
    await sleep(10);
    expect(order).toHaveLength(10);
    pass(0.3);
    await expect.poll(() => order).toHaveLength(12);
    // Nobody else is here any more.
    pass(2_000);
    await expect.poll(() => order).toHaveLength(15);
  });

  it('of greedy clients are taken, however many others wait', async () => {
    const { client, order } = started(0.9);
    const all = [client('greedy', 3, '192.0.2.1'), client('modest', 40, '192.0.2.2')];
    for (const place of all) place.add();
    while (order.length < 30) await turn();
    const greedyAt = order.flatMap((name, at) => (name === 'greedy' ? [at] : []));
    // Two modest frames in each pass, a greedy one of 0.9 ms rests for 8.1 ms.
    expect(greedyAt.slice(0, 2)).toEqual([2, 13]);
  });

  it('of one network alone wait for no turn, whatever their weight', async () => {
    const { client, finish } = started();
    client('large', 5, '192.0.2.1', 1, 1_000_000).add();
    const next = client('next', 1, '192.0.2.2');
    await finish(5);
    next.add();
    expect(await finish(6)).toEqual([...Array<string>(5).fill('large'), 'next']);
  });

  it('are all processed once, also of connections that leave and rejoin', async () => {
    const { client, finish } = started();
    const gone = client('gone', 5, '192.0.2.1');
    gone.add();
    gone.add();
    gone.leave();
    const next = client('next', 5, '192.0.2.1');
    next.add();
    expect((await finish(10)).filter((name) => name === 'gone')).toHaveLength(5);
    gone.add();
    next.add();
    await turn();
    await turn();
    expect(await finish(10)).toHaveLength(10);
  });

  it('of very many connections are taken in order', async () => {
    const { client, finish } = started();
    const places = Array.from({ length: 5_000 }, (_, name) => client(String(name), 2, '192.0.2.1'));
    for (const place of places) place.add();
    const order = await finish(10_000);
    const names = places.map((_, name) => String(name));
    expect(order).toEqual([...names, ...names]);
  });
});
