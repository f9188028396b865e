/** The status of a member, in a word and a colour. */
import { Badge } from '@mantine/core';
import { useT } from '../../../shared/i18n.js';

interface Member {
  readonly status: 'active' | 'disabled' | 'deleted';
  readonly left_at: number | null;
}

const COLORS = { active: 'teal', disabled: 'orange', deleted: 'gray', left: 'gray' } as const;

export function StatusBadge({ member: { status, left_at } }: { readonly member: Member }) {
  const t = useT();
  const shown = status === 'active' && left_at !== null ? 'left' : status;
  return (
    <Badge variant="dot" color={COLORS[shown]} tt="none">
      {t(`members:statuses.${shown}`)}
    </Badge>
  );
}
