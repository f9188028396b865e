/** Parts that the pages of batches share. */
import { Badge, Button, Text } from '@mantine/core';
import { IconArrowBackUp } from '@tabler/icons-react';
import { useState } from 'react';
import { useAction } from '../../../shared/api.js';
import { Confirm } from '../../../shared/components/confirm.js';
import { number } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import { notifyDone } from '../../../shared/providers.js';
import { useMay } from '../../session.js';
import { TOUCHED, undoBatch } from '../cases/actions.js';
import './texts.js';
import type { Batch } from './types.js';

const COLORS: Readonly<Record<Batch['status'], string>> = {
  running: 'blue',
  done: 'teal',
  undoing: 'blue',
  undone: 'gray',
};

export function BatchStatus({ status }: Pick<Batch, 'status'>) {
  const t = useT();
  return (
    <Badge variant="dot" color={COLORS[status]} tt="none">
      {t(`batches:status.${status}`)}
    </Badge>
  );
}

/** Undoes a whole batch, after it has said how much that is. */
export function UndoBatch({ batch }: { readonly batch: Batch }) {
  const t = useT();
  const [isAsking, setAsking] = useState(false);
  const may = useMay('moderator');
  const undoing = useAction(() => undoBatch(batch.batch_id), {
    changes: [...TOUCHED, ['batch', batch.batch_id]],
    onDone: () => notifyDone(t('batches:undone')),
  });
  if (batch.status === 'undoing' || batch.status === 'undone') return null;
  return (
    <>
      <Button
        size="compact-sm"
        variant="default"
        disabled={!may}
        loading={undoing.isPending}
        leftSection={<IconArrowBackUp size={15} />}
        onClick={() => setAsking(true)}
      >
        {t('batches:undo')}
      </Button>
      <Confirm
        opened={isAsking}
        isHarmless
        title={t('batches:undoTitle')}
        action={t('batches:undo')}
        onClose={() => setAsking(false)}
        onConfirm={() => {
          setAsking(false);
          undoing.mutate(undefined);
        }}
      >
        <Text size="sm">{t('batches:undoAbout', { n: number(batch.matched) })}</Text>
      </Confirm>
    </>
  );
}
