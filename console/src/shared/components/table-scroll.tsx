/** A table that may be wider than the screen: it scrolls by itself, also with the keyboard. */
import { Box } from '@mantine/core';
import type { ReactNode } from 'react';

export function TableScroll({ label, children }: { readonly label: string; readonly children: ReactNode }) {
  return (
    <Box component="section" className="table-scroll" aria-label={label} tabIndex={0}>
      {children}
    </Box>
  );
}
