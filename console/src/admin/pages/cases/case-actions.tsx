/** What a moderator can do about one case: one click each, with a note, and each can be undone. */
import { Button, Collapse, Paper, Stack, Text, Textarea, Title } from '@mantine/core';
import {
  IconArrowBackUp,
  IconBan,
  IconCheck,
  IconEyeOff,
  IconSend,
  IconTag,
  IconTagOff,
  IconUserCheck,
} from '@tabler/icons-react';
import { useState } from 'react';
import { useT } from '../../../shared/i18n.js';
import { useMay } from '../../session.js';
import { type LabelSpec, useActing } from './actions.js';
import { LabelFields, NEW_LABEL } from './label-fields.js';
import type { CaseAction, WholeCase } from './types.js';

const NOTE_MAX = 2_000;
const EFFECTIVE = ['removed', 'restored', 'served', 'done'];

/** The newest of these actions that had an effect. */
function lastOf(found: WholeCase, names: readonly CaseAction[]): CaseAction | undefined {
  return found.actions.findLast(
    ({ action, outcome }) => names.includes(action) && outcome !== null && EFFECTIVE.includes(outcome),
  )?.action;
}

export function CaseActions({ found }: { readonly found: WholeCase }) {
  const t = useT();
  const [note, setNote] = useState('');
  const [isLabelling, setLabelling] = useState(false);
  const [label, setLabel] = useState<LabelSpec>(NEW_LABEL);
  const acting = useActing(() => {
    setNote('');
    setLabelling(false);
  });
  const may = useMay('moderator');
  const run = (action: CaseAction, put?: LabelSpec) =>
    acting.mutate({ caseIds: [found.case_id], action, note, ...(put === undefined ? {} : { label: put }) });
  const { status, target_event: event } = found;
  const isRemoved = lastOf(found, ['remove', 'restore']) === 'remove';
  const isBanned = lastOf(found, ['ban', 'unban']) === 'ban';
  const inForce = found.labels.filter(
    ({ withdrawn_at, lapses_at }) => withdrawn_at === null && lapses_at * 1_000 > Date.now(),
  );
  const shared = { fullWidth: true, justify: 'flex-start', disabled: !may || acting.isPending } as const;
  return (
    <Paper withBorder p="md" component="section">
      <Title order={2} size="h5" mb="sm">
        {t('cases:decide')}
      </Title>
      <Stack gap="xs">
        <Textarea
          label={t('cases:note')}
          description={t('cases:noteAbout')}
          autosize
          minRows={2}
          maxLength={NOTE_MAX}
          value={note}
          onChange={(change) => setNote(change.currentTarget.value)}
          mb="xs"
        />
        {event !== null && isRemoved && (
          <Button {...shared} leftSection={<IconSend size={17} />} onClick={() => run('restore')}>
            {t(status === 'held' ? 'cases:act.release' : 'cases:act.restore')}
          </Button>
        )}
        {event !== null && (!isRemoved || status === 'held') && (
          <Button
            {...shared}
            variant={status === 'held' ? 'default' : 'filled'}
            leftSection={<IconEyeOff size={17} />}
            onClick={() => run('remove')}
          >
            {t('cases:act.remove')}
          </Button>
        )}
        {status === 'open' && (
          <Button
            {...shared}
            variant="default"
            leftSection={<IconCheck size={17} />}
            onClick={() => run('dismiss')}
          >
            {t('cases:act.dismiss')}
          </Button>
        )}
        {(status === 'resolved' || status === 'dismissed') && (
          <Button
            {...shared}
            variant="default"
            leftSection={<IconArrowBackUp size={17} />}
            onClick={() => run('reopen')}
          >
            {t('cases:act.reopen')}
          </Button>
        )}
        <Button
          {...shared}
          variant="default"
          leftSection={isBanned ? <IconUserCheck size={17} /> : <IconBan size={17} />}
          onClick={() => run(isBanned ? 'unban' : 'ban')}
        >
          {t(isBanned ? 'cases:act.unban' : 'cases:act.ban')}
        </Button>
        {inForce.map(({ label: name, confidence, policy }) => (
          <Button
            {...shared}
            key={name}
            variant="default"
            leftSection={<IconTagOff size={17} />}
            onClick={() => run('unlabel', { label: name, confidence, policy, days: 1 })}
          >
            {t('cases:unlabelOne', { label: t(`cases:labels.${name}`) })}
          </Button>
        ))}
        <Button
          {...shared}
          variant="default"
          leftSection={<IconTag size={17} />}
          aria-expanded={isLabelling}
          onClick={() => setLabelling(!isLabelling)}
        >
          {t('cases:act.label')}
        </Button>
        <Collapse expanded={isLabelling}>
          <Stack gap="xs" pt="xs">
            <LabelFields value={label} onChange={setLabel} />
            <Button disabled={!may || acting.isPending} onClick={() => run('label', label)}>
              {t('cases:putLabel')}
            </Button>
          </Stack>
        </Collapse>
        <Text size="xs" c="dimmed">
          {t('cases:undoAbout')}
        </Text>
      </Stack>
    </Paper>
  );
}
