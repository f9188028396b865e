import { describe, expect, it } from 'vitest';
import { messageOf } from '../api/rules-errors.js';
import { hasRole, ROLES, type Role, refuseRole } from './rules-roles.js';

/** By the role of a key: which routes it may call, by their least role. */
const MAY: Record<Role | 'none', Record<Role, boolean>> = {
  none: { viewer: false, moderator: false, operator: false },
  viewer: { viewer: true, moderator: false, operator: false },
  moderator: { viewer: true, moderator: true, operator: false },
  operator: { viewer: true, moderator: true, operator: true },
};

describe('a role', () => {
  it('may do what lower roles may, and nothing else', () => {
    for (const [name, may] of Object.entries(MAY)) {
      const role = name === 'none' ? undefined : (name as Role);
      for (const least of ROLES) {
        expect(hasRole(role, least), `${name} ${least}`).toBe(may[least]);
        expect(refuseRole(role, least)?.details).toEqual(may[least] ? undefined : { role: least });
      }
    }
  });

  it('that is missing is named by the refusal', () => {
    const messages = ROLES.map((least) => messageOf(refuseRole(undefined, least)!));
    expect(messages).toEqual([
      'This needs a role in this community: viewer or higher.',
      'This needs a role in this community: moderator or higher.',
      'Only an operator of this community may do this.',
    ]);
  });
});
