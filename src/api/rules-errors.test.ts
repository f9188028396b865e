import { describe, expect, it } from 'vitest';
import { denial, ERRORS, messageOf } from './rules-errors.js';

describe('the message of a refusal', () => {
  it('says what was not found: by its details, otherwise by the parameters of the route', () => {
    expect(messageOf(denial('NOT_FOUND', { follower: 'index' }), { name: 'x' })).toBe(
      'Not found: follower index.',
    );
    expect(messageOf(denial('NOT_FOUND'), { erasure_id: 7 })).toBe('Not found: erasure id 7.');
    expect(messageOf(denial('NOT_FOUND'))).toBe('Not found.');
  });

  it('is bounded, whatever was looked for', () => {
    expect(messageOf(denial('NOT_FOUND'), { path: 'x'.repeat(10_000) }).length).toBeLessThan(250);
  });

  it('of any other code does not depend on what was looked for', () => {
    expect(messageOf(denial('COMMUNITY_NOT_FOUND'), { name: 'x' })).toBe(ERRORS.COMMUNITY_NOT_FOUND.message);
  });
});
