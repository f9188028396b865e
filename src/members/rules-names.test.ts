import { describe, expect, it } from 'vitest';
import { nameInProfile } from './rules-names.js';

const named = (profile: unknown) => nameInProfile(JSON.stringify(profile));

describe('the name in a profile', () => {
  it('is its display name, else its name', () => {
    expect(named({ display_name: 'Aoi', name: 'aoi_k' })).toBe('Aoi');
    expect(named({ display_name: ' ', name: 'aoi_k' })).toBe('aoi_k');
    expect(named({ name: '港 の 人' })).toBe('港 の 人');
  });

  it('is missing when the profile has none, or cannot be read', () => {
    expect(named({})).toBeUndefined();
    expect(named({ name: 7 })).toBeUndefined();
    expect(named(null)).toBeUndefined();
    expect(nameInProfile('{"name":')).toBeUndefined();
  });

  it('is one line of at most 64 characters, without characters that change what is around it', () => {
    expect(named({ name: 'a\u202eb\nc\u200b' })).toBe('abc');
    expect([...named({ name: '😀'.repeat(100) })!]).toHaveLength(64);
  });
});
