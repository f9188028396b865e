/** The content of an event, as text only: nothing in it is loaded, and no markup is interpreted. */
import { Anchor, Box, Text } from '@mantine/core';
import { useState } from 'react';
import { useT } from '../i18n.js';

const SHORT = 420;

export function EventText({ text, short = SHORT }: { readonly text: string; readonly short?: number }) {
  const t = useT();
  const [isWhole, setWhole] = useState(false);
  const isLong = text.length > short;
  return (
    <Box>
      <Text size="sm" className="text">
        {isLong && !isWhole ? `${text.slice(0, short)}…` : text}
      </Text>
      {isLong && (
        <Anchor component="button" type="button" size="xs" onClick={() => setWhole(!isWhole)}>
          {t(isWhole ? 'shared:showLess' : 'shared:showAll')}
        </Anchor>
      )}
    </Box>
  );
}
