/** Reports a post to the moderators of the community. */
import { Button, Group, Modal, Select, Stack, Text, Textarea } from '@mantine/core';
import type { VerifiedEvent } from 'nostr-tools/pure';
import { useState } from 'react';
import { useT } from '../../shared/i18n.js';
import { notifyDone } from '../../shared/providers.js';
import { REASONS, type Reason, useReport } from '../data.js';

interface ReportDialogProps {
  readonly post: VerifiedEvent;
  readonly opened: boolean;
  readonly onClose: () => void;
}

export function ReportDialog({ post, opened, onClose }: ReportDialogProps) {
  const t = useT();
  const [reason, setReason] = useState<Reason>('spam');
  const [comment, setComment] = useState('');
  const report = useReport(() => {
    onClose();
    notifyDone(t('home:reported'));
  });
  return (
    <Modal
      opened={opened}
      onClose={onClose}
      title={t('home:reportTitle')}
      closeButtonProps={{ 'aria-label': t('shared:close') }}
    >
      <form
        onSubmit={(event) => {
          event.preventDefault();
          report.mutate({ event_id: post.id, pubkey: post.pubkey, reason, comment: comment.trim() });
        }}
      >
        <Stack>
          <Text size="sm">{t('home:reportAbout')}</Text>
          <Select
            label={t('home:reason')}
            allowDeselect={false}
            value={reason}
            onChange={(chosen) => setReason((chosen ?? 'other') as Reason)}
            data={REASONS.map((each) => ({ value: each, label: t(`home:reasons.${each}`) }))}
          />
          <Textarea
            label={t('home:comment')}
            maxLength={2_000}
            autosize
            minRows={2}
            value={comment}
            onChange={(event) => setComment(event.currentTarget.value)}
          />
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose}>
              {t('shared:cancel')}
            </Button>
            <Button type="submit" loading={report.isPending}>
              {t('home:sendReport')}
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
