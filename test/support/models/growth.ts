/**
 * Measures how time grows with the length of the input, as a ratio, which means the same on a slow or busy
 * machine.
 */

const SMALL = 6_000;
const TIMES = 8;
/**
 * Eight times the input takes eight times as long where time is linear, and 64 times where it is quadratic.
 */
export const EIGHTFOLD_MAX = 32;

/**
 * How much longer eight times the input takes, in CPU time. It uses the minimum of some rounds, since other
 * work of the machine only adds to it.
 */
export function growth(work: (length: number) => void): number {
  const best = (length: number) =>
    Math.min(
      ...Array.from({ length: 4 }, () => {
        const before = process.cpuUsage();
        work(length);
        const { user, system } = process.cpuUsage(before);
        return user + system;
      }),
    );
  // The first calls include the time of the compiler.
  best(SMALL);
  return Math.min(...Array.from({ length: 4 }, () => best(TIMES * SMALL) / Math.max(1, best(SMALL))));
}
