/** What rules and moderators decided about the member, and appeals. */
import { Badge, Button, Code, Group, Modal, Paper, Stack, Text, Textarea } from '@mantine/core';
import { IconGavel } from '@tabler/icons-react';
import { useState } from 'react';
import { Empty, Failure, Loading } from '../../shared/components/states.js';
import { When } from '../../shared/components/when.js';
import { useT } from '../../shared/i18n.js';
import { notifyDone } from '../../shared/providers.js';
import { type Decision, useAppeal, useDecisions } from '../data.js';
import { Own } from '../parts/own.js';

/** Decisions that one can appeal against. */
const AGAINST: ReadonlySet<Decision['action']> = new Set(['remove', 'label', 'ban']);

export default function Moderation() {
  const t = useT();
  return (
    <Own title={t('home:decisions')} about={t('home:decisionsAbout')}>
      <Decisions />
    </Own>
  );
}

function Decisions() {
  const t = useT();
  const list = useDecisions();
  const [appealed, setAppealed] = useState<Decision>();
  if (list.isPending) return <Loading />;
  if (list.isError) return <Failure error={list.error} retry={() => void list.refetch()} />;
  if (list.items.length === 0)
    return (
      <Empty title={t('home:noDecisions')} icon={<IconGavel size={26} />}>
        {t('home:noDecisionsAbout')}
      </Empty>
    );
  return (
    <Stack gap="sm">
      {list.items.map((each) => (
        <Paper key={`${each.at} ${each.action} ${each.event_id}`} withBorder p="md">
          <Group justify="space-between" align="flex-start">
            <Stack gap={4} miw={0}>
              <Group gap="xs">
                <Text fw={600}>{t(`home:decision.${each.action}`)}</Text>
                {each.held && <Badge color="indigo.8">{t('home:held')}</Badge>}
                {each.by_a_rule && <Badge variant="default">{t('home:byRule')}</Badge>}
              </Group>
              <Text size="xs" c="dimmed">
                <When at={each.at} />
              </Text>
              {each.event_id !== null && <Code className="text">{each.event_id}</Code>}
              {each.appeal !== null && (
                <Text size="sm" className="text">
                  {t(each.appeal.waiting ? 'home:appealWaits' : 'home:appealSettled', {
                    text: each.appeal.text,
                  })}
                </Text>
              )}
            </Stack>
            {each.appeal === null && AGAINST.has(each.action) && (
              <Button size="xs" variant="default" onClick={() => setAppealed(each)}>
                {t('home:appeal')}
              </Button>
            )}
          </Group>
        </Paper>
      ))}
      {list.hasNextPage && (
        <Button variant="default" loading={list.isFetchingNextPage} onClick={() => void list.fetchNextPage()}>
          {t('shared:more')}
        </Button>
      )}
      <AppealDialog decision={appealed} onClose={() => setAppealed(undefined)} />
    </Stack>
  );
}

interface AppealDialogProps {
  readonly decision: Decision | undefined;
  readonly onClose: () => void;
}

function AppealDialog({ decision, onClose }: AppealDialogProps) {
  const t = useT();
  const [text, setText] = useState('');
  const appeal = useAppeal(() => {
    setText('');
    onClose();
    notifyDone(t('home:appealed'));
  });
  return (
    <Modal
      opened={decision !== undefined}
      onClose={onClose}
      title={t('home:appeal')}
      closeButtonProps={{ 'aria-label': t('shared:close') }}
    >
      <form
        onSubmit={(event) => {
          event.preventDefault();
          const about = decision?.event_id;
          appeal.mutate({ text: text.trim(), ...(about ? { event_id: about } : {}) });
        }}
      >
        <Stack>
          <Text size="sm">{t('home:appealAbout')}</Text>
          <Textarea
            data-autofocus
            label={t('home:appealWhy')}
            maxLength={2_000}
            autosize
            minRows={3}
            value={text}
            onChange={(event) => setText(event.currentTarget.value)}
          />
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose}>
              {t('shared:cancel')}
            </Button>
            <Button type="submit" loading={appeal.isPending} disabled={text.trim() === ''}>
              {t('home:sendAppeal')}
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
