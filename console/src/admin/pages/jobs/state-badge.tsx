/** A state in words, with a dot of its colour. The words have the contrast of normal text. */
import { Badge } from '@mantine/core';
import type { ReactNode } from 'react';

interface StateBadgeProps {
  readonly color: 'gray' | 'blue' | 'teal' | 'orange' | 'red';
  readonly children: ReactNode;
  /** Changes are read to people who cannot see them. */
  readonly isLive?: boolean;
}

export function StateBadge({ color, children, isLive = false }: StateBadgeProps) {
  return (
    <Badge
      variant="default"
      size="lg"
      fw={500}
      tt="none"
      miw="max-content"
      leftSection={<Dot color={color} />}
      {...(isLive ? { 'aria-live': 'polite' } : {})}
    >
      {children}
    </Badge>
  );
}

function Dot({ color }: { readonly color: string }) {
  return (
    <svg width={8} height={8} viewBox="0 0 8 8" aria-hidden="true">
      <circle cx={4} cy={4} r={4} fill={`var(--mantine-color-${color}-6)`} />
    </svg>
  );
}
