/**
 * Notices that the wall clock was set: beside a clock that does not jump it has moved on by more, or by less,
 * than the time that passed. Pure.
 */
const CLOCK_SET_MS = 10_000;

export class ClockWatch {
  private aheadMs: number | undefined;

  /** Whether it was set since the last look. A clock that is corrected slowly is not noticed. */
  wasSet(wallMs: number, steadyMs: number): boolean {
    const before = this.aheadMs ?? wallMs - steadyMs;
    this.aheadMs = wallMs - steadyMs;
    return Math.abs(this.aheadMs - before) > CLOCK_SET_MS;
  }
}
