/**
 * What a folder of pages declares in its `route.tsx`: its paths, the code of each, and its entry in the
 * navigation. The shell finds all of them; nothing else has to be registered.
 */
import type { ComponentType } from 'react';
import type { Label } from '../shared/i18n.js';

export type Role = 'viewer' | 'moderator' | 'operator';

export const GROUPS = ['now', 'people', 'content', 'moderation', 'node'] as const;
export type Group = (typeof GROUPS)[number];

export interface NavEntry {
  readonly group: Group;
  /** Entries of a group are in this order. */
  readonly order: number;
  readonly label: Label;
  readonly icon: ComponentType<{ size?: number; stroke?: number }>;
  /** The least role that sees it; `viewer` by default. */
  readonly role?: Role;
}

export interface PageRoute {
  /** Below `/admin`, such as `/topics/$topic`. */
  readonly path: string;
  readonly load: () => Promise<{ readonly default: ComponentType }>;
  readonly nav?: NavEntry;
}

const RANKS: Readonly<Record<Role, number>> = { viewer: 0, moderator: 1, operator: 2 };

/** Whether a role may do what needs at least the other. */
export const mayAct = (role: Role, least: Role): boolean => RANKS[role] >= RANKS[least];
