import { describe, expect, it } from 'vitest';
import { backOffMs, isOutage } from './failures.js';

const coded = (code: string) => Object.assign(new Error('failed'), { code });

describe('an outage', () => {
  it.each([
    ['a connection that failed', '08006'],
    ['a full disk', '53100'],
    ['too many connections', '53300'],
    ['a shutdown by the operator', '57P01'],
    ['a statement that took too long', '57014'],
    ['an error of the disk', '58030'],
    ['a serialization failure', '40001'],
    ['a deadlock', '40P01'],
    ['a lock that was not available in time', '55P03'],
    ['a transaction that was idle for too long', '25P03'],
    ['a transaction that was open for too long', '25P04'],
    ['a reset of the connection', 'ECONNRESET'],
  ])('is %s', (_what, code) => {
    expect(isOutage(coded(code), true)).toBe(true);
  });

  it('is any error that breaks the session', () => {
    expect(isOutage(new Error('without a code'), false)).toBe(true);
    expect(isOutage(coded('22P02'), false)).toBe(true);
  });

  it.each([
    ['data that the database refuses', coded('22P02')],
    ['a broken constraint', coded('23505')],
    ['a missing table', coded('42P01')],
    ['a document that is too large', coded('54000')],
    ['a statement after one that failed', coded('25P02')],
    ['an error of the program', new TypeError('undefined is not a function')],
    ['something that is no error', 'thrown'],
    ['nothing', undefined],
  ])('is not %s', (_what, error) => {
    expect(isOutage(error, true)).toBe(false);
  });
});

it('each back-off is longer than the one before, up to a limit', () => {
  expect([1, 2, 3, 4, 100, 100_000].map((failures) => backOffMs(failures, 100, 500))).toEqual([
    100, 200, 400, 500, 500, 500,
  ]);
});
