import { describe, expect, it } from 'vitest';
import { profileIn } from './rules-profile.js';

const profileOf = (content: string) => profileIn(JSON.stringify({ content }));
const shown = (profile: unknown) => profileOf(JSON.stringify(profile));

describe('a profile', () => {
  it('has its names, and none that are empty or no text', () => {
    expect(shown({ display_name: 'Aoi', name: 'aoi_k' })).toMatchObject({
      displayName: 'Aoi',
      name: 'aoi_k',
    });
    expect(shown({ display_name: ' ', name: '港 の 人' })).toMatchObject({
      displayName: null,
      name: '港 の 人',
    });
    expect(shown({ displayName: 'Bo', name: 7 })).toMatchObject({ displayName: 'Bo', name: null });
  });

  it('is missing when it cannot be read', () => {
    expect(profileIn(null)).toBeNull();
    expect(shown(null)).toBeNull();
    expect(profileOf('{"name":')).toBeNull();
  });

  it('has names of one bounded line, without characters that change what is around them', () => {
    expect(shown({ name: 'a\u202eb\nc\u200b' })?.name).toBe('abc');
    expect(shown({ name: '😀'.repeat(100) })!.name!.length).toBeLessThanOrEqual(100);
    expect(shown({ about: 'two\nlines' })?.about).toBe('two\nlines');
  });
});
