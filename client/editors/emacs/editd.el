;;; editd.el --- Save through editd, share files with agents  -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The editd developers

;; Author: The editd developers
;; Version: 0.1.0
;; Package-Requires: ((emacs "28.1"))
;; Keywords: files, vc, tools
;; URL: https://example.invalid/editd
;; SPDX-License-Identifier: MIT

;;; Commentary:

;; editd is a daemon that makes every edit of a workspace's files an atomic
;; transaction, with a history in which each of them can be undone.
;; `editd-mode' saves a buffer through it:
;;
;; - A save is made for the version of the file that the buffer was read at.
;;   If an agent, a shell or another editor has changed the file since,
;;   nothing is overwritten: you choose to reload, to merge or to overwrite.
;; - A buffer without changes follows its file.  A buffer with changes takes in
;;   a change of its file if both merge.  If not, it gets a mark in the mode
;;   line ("editd!"), and `editd-merge' marks the conflicts.
;; - The daemon knows what you have not saved.  An agent's edit that would run
;;   into it is refused, with the lines.
;; - `editd-log', `editd-blame' and `editd-diff' show changes and authors.
;;   `editd-undo', `editd-redo' and `editd-rollback' take them back.
;; - `editd-proposals' shows what waits for your decision, hunk by hunk.
;;
;; Turn it on everywhere with
;;
;;   (global-editd-mode 1)
;;
;; and bind the commands to a key with
;;
;;   (global-set-key (kbd "C-c e") editd-command-map)
;;
;; If no daemon answers, or a file is in no workspace, Emacs saves without
;; editd and shows a message.  The history records such a save, too, when a
;; daemon runs.

;;; Code:

(require 'cl-lib)
(require 'jsonrpc)
(require 'seq)
(require 'subr-x)
(require 'tabulated-list)

(require 'diff-mode)

(declare-function ediff-buffers "ediff" (buffer-a buffer-b &optional startup-hooks job-name))
(declare-function smerge-start-session "smerge-mode" (&optional interactively))
(defvar create-lockfiles)

(defgroup editd nil
  "Edits as transactions, shared with agents."
  :group 'files
  :prefix "editd-")

(defcustom editd-program '("editctl")
  "The command `editctl', and arguments that come before its own."
  :type '(repeat string))

(defcustom editd-workspace nil
  "The workspace of the files below it; nil for the git repository around a file.
The next choice is EDITD_WORKSPACE in the environment, as for `editctl'."
  :type '(choice (const :tag "The git repository" nil) directory))

(defcustom editd-start-daemon t
  "Whether to start a daemon for a workspace without one."
  :type 'boolean)

(defcustom editd-actor "emacs"
  "The author of your edits in the history."
  :type 'string)

(defcustom editd-session nil
  "The name of the session for your edits, or nil for none."
  :type '(choice (const :tag "None" nil) string))

(defcustom editd-timeout 10
  "The longest wait for the daemon, in seconds."
  :type 'number)

(defcustom editd-without-daemon 'save
  "What to do with a save if no daemon answers.
`save' lets Emacs save without editd and shows a message, `ask' asks
first, and `refuse' leaves the buffer unsaved."
  :type '(choice (const save) (const ask) (const refuse)))

(defcustom editd-make-backups nil
  "Whether saving through the daemon also makes Emacs's backup files.
The history holds every version, so they are not needed."
  :type 'boolean)

(defcustom editd-lockfiles nil
  "Whether Emacs makes its lock files (\".#NAME\") beside files of a workspace.
The daemon refuses stale saves, and lock files would enter its history."
  :type 'boolean)

(defcustom editd-merge-changes 'auto
  "What a buffer with changes does if others have changed its file.
`auto' takes in a change that merges, and `ask' only marks the buffer."
  :type '(choice (const auto) (const ask)))

(defcustom editd-share-unsaved 'text
  "What others learn of your unsaved text.
`text' sends it to the daemon, which tries the edits of others on it.
`flag' sends only that there are changes, and nil sends nothing."
  :type '(choice (const text) (const flag) (const :tag "Nothing" nil)))

(defcustom editd-private '(".env*" "*.pem" "*.key" "id_*" "*.kdbx")
  "Wildcards for names of files whose unsaved text is never shared.
For them `editd-share-unsaved' is at most `flag'."
  :type '(repeat string))

(defcustom editd-diff3-program "diff3"
  "The program that marks conflicts, if both sides changed the same lines."
  :type 'string)

(defface editd-changed '((t :inherit warning))
  "Face of the mark for a buffer whose file others have changed.")

(defface editd-margin '((t :inherit shadow))
  "Face of a line's author in `editd-blame'.")

(define-error 'editd-error "Editd")
(define-error 'editd-refused "Refused by editd" 'editd-error)
(define-error 'editd-unreachable "No editd" 'editd-error)


;;; The mode

(cl-defstruct (editd--workspace (:constructor editd--make-workspace (root)) (:copier nil))
  "A workspace: its ROOT, the CONNECTION to its daemon and its state."
  root connection ready opening (why "No connection was tried yet.") socket events timer)

(defvar-local editd--root nil "The workspace's root, with a slash at its end.")
(defvar-local editd--path nil "The file's path in the workspace.")
(defvar-local editd--base nil
  "The version of the file that this buffer was read at.
Nil if there was no file; `editd--unknown' if the version is unknown.")
(defvar-local editd--theirs nil
  "The version of a later change by others, `gone', or nil.")
(defvar-local editd--held nil
  "A list of what the daemon holds of this buffer.
The connection, the path, the base and the buffer's tick; nil for nothing.")
(defvar-local editd--hold-timer nil "The timer for the next hold, or nil.")
(dolist (variable '(editd-mode editd--root editd--path editd--base editd--theirs
                               editd--held editd--hold-timer))
  (put variable 'permanent-local t))    ; a change of the major mode keeps them

(defconst editd--unknown (make-string 40 ?0) "A version that no file has.")

(defvar editd-command-map
  (let ((map (make-sparse-keymap)))
    (define-key map "l" #'editd-log)
    (define-key map "b" #'editd-blame)
    (define-key map "d" #'editd-diff)
    (define-key map "m" #'editd-merge)
    (define-key map "u" #'editd-undo)
    (define-key map "r" #'editd-redo)
    (define-key map "R" #'editd-rollback)
    (define-key map "p" #'editd-proposals)
    (define-key map "s" #'editd-status)
    map)
  "Keymap of the commands, to bind to a key.")

;;;###autoload
(define-minor-mode editd-mode
  "Save this buffer through editd, and follow changes of its file."
  :lighter (:eval (editd--lighter))
  (if (not editd-mode)
      (editd--leave)
    (unless (editd--enter)
      (setq editd-mode nil)
      (when (called-interactively-p 'any)
        (message "This buffer visits no file in a workspace of editd")))))

;;;###autoload
(define-globalized-minor-mode global-editd-mode editd-mode editd--turn-on
  :group 'editd)

(defun editd--turn-on ()
  "Turn on `editd-mode' if the buffer's file is in a workspace."
  (when (and (not editd-mode) (editd--place))
    (editd-mode 1)))

(defconst editd--hooks
  '((write-file-functions editd--write-file 90)
    (after-save-hook editd--after-save -90)
    (after-revert-hook editd--note-base -90)
    (after-set-visited-file-name-hook editd--enter-again 0)
    (after-change-major-mode-hook editd--enter-again 0)
    (after-change-functions editd--hold-later 0)
    (kill-buffer-hook editd--release 0))
  "The hooks of a buffer in `editd-mode': functions and depths.")
(pcase-dolist (`(,_ ,function ,_) editd--hooks)
  (put function 'permanent-local-hook t))

(defun editd--enter ()
  "Follow this buffer's file; return nil if it is in no workspace."
  (when-let ((place (editd--place)))
    (unless (equal place (cons editd--root editd--path))
      (editd--release)
      (setq editd--base editd--unknown editd--theirs nil))
    (setq editd--root (car place) editd--path (cdr place))
    (pcase-dolist (`(,hook ,function ,depth) editd--hooks)
      (add-hook hook function depth t))
    (unless editd-lockfiles
      (setq-local create-lockfiles nil))
    (advice-add 'basic-save-buffer :around #'editd--around-save)
    (editd--note-base)
    (editd--connect (editd--workspace editd--root))
    t))

(defun editd--leave ()
  "Leave this buffer's file to Emacs again."
  (editd--release)
  (pcase-dolist (`(,hook ,function ,_) editd--hooks)
    (remove-hook hook function t))
  (kill-local-variable 'create-lockfiles)
  (mapc #'kill-local-variable '(editd--root editd--path editd--base editd--theirs)))

(defun editd--enter-again ()
  "Follow the file that this buffer visits now."
  (unless (editd--enter)
    (editd-mode -1)))

(defun editd--lighter ()
  "Return the mode line's word: connected, not connected, or changed by others."
  (cond (editd--theirs (propertize " editd!" 'face 'editd-changed
                                   'help-echo "Others have changed the file: M-x editd-merge"))
        ((editd--live-p (editd--workspace editd--root)) " editd")
        (t (propertize " editd-" 'help-echo "The daemon does not answer"))))

(defun editd--place ()
  "Return the workspace of this buffer's file and the path in it, or nil."
  (when-let* ((file (and buffer-file-name
                         (not (file-remote-p buffer-file-name))
                         (file-truename buffer-file-name)))
              (root (editd--root-of file))
              (path (file-relative-name file root)))
    (unless (or (string-prefix-p "../" path)
                (member ".git" (split-string path "/")))
      (cons root path))))

(defun editd--root-of (file)
  "Return the workspace of FILE, with a slash at its end, or nil."
  (let ((named (seq-find (lambda (folder) (and folder (file-in-directory-p file folder)))
                         (list editd-workspace (getenv "EDITD_WORKSPACE")))))
    (when-let ((root (or named
                         (locate-dominating-file file #'editd--served-p)
                         (locate-dominating-file file ".git"))))
      (file-name-as-directory (file-truename root)))))

(defun editd--served-p (folder)
  "Return whether FOLDER is a workspace already, or a linked worktree."
  (let* ((root (directory-file-name (file-truename folder)))
         (coding (or file-name-coding-system default-file-name-coding-system 'utf-8))
         (id (substring (secure-hash 'sha256 (encode-coding-string root coding t)) 0 16))
         (above (getenv "XDG_STATE_HOME"))
         (states (if (and above (file-name-absolute-p above)) above "~/.local/state"))
         (state (expand-file-name (concat "editd/" id "/") states)))
    (or (file-exists-p (expand-file-name "nested" state))
        (and (file-exists-p (expand-file-name ".git" root))
             (or (file-exists-p (expand-file-name "store.git" state))
                 (editd--linked-worktree-p root))))))

(defun editd--linked-worktree-p (root)
  "Return whether the `.git' file of ROOT is that of a linked worktree."
  (let ((file (expand-file-name ".git" root)))
    (when (file-regular-p file)
      (with-temp-buffer
        (insert-file-contents-literally file)
        (when (looking-at "gitdir: \\([^\r\n]*/worktrees/[^/\r\n]+\\)")
          (let ((git (expand-file-name (match-string 1) root)))
            (or (file-exists-p (expand-file-name "commondir" git))
                (not (file-exists-p git)))))))))


;;; Saving

(defun editd--around-save (save &rest arguments)
  "Call SAVE with ARGUMENTS, without Emacs's question about a changed file."
  (let ((buffer (or (buffer-base-buffer) (current-buffer))))
    (if (or (not (buffer-local-value 'editd-mode buffer))
            (verify-visited-file-modtime buffer))
        (apply save arguments)
      (let ((known (with-current-buffer buffer
                     (prog1 (visited-file-modtime) (set-visited-file-modtime)))))
        (unwind-protect (apply save arguments)
          (when (and (buffer-live-p buffer) (buffer-modified-p buffer))
            (with-current-buffer buffer (set-visited-file-modtime known))))))))

(defun editd--write-file ()
  "Save this buffer through the daemon; return nil if Emacs has to save it."
  (when (and editd-mode (editd--plain-p))
    (editd--make-folder)
    (when editd-make-backups
      (editd--backup))
    (pcase-let ((`(,bytes . ,coding) (editd--encoded)))
      (when (editd--save bytes coding)
        ;; `basic-save-buffer' reads the coding system from this variable.
        (setq last-coding-system-used coding)
        (when buffer-file-coding-system-explicit
          (setcar buffer-file-coding-system-explicit coding))
        t))))

(defun editd--plain-p ()
  "Return whether Emacs would write just this buffer's encoded text."
  (not (or buffer-file-format
           write-region-annotate-functions
           (find-file-name-handler buffer-file-name 'write-region))))

(defun editd--make-folder ()
  "Ask before the daemon makes a folder for this buffer's file, as Emacs does."
  (let ((folder (file-name-directory buffer-file-name)))
    (unless (or (file-exists-p folder)
                (y-or-n-p (format-message "Directory `%s' does not exist; create? " folder)))
      (user-error "Canceled"))))

(defun editd--save (bytes coding)
  "Write BYTES, encoded by CODING, to the file; return nil if Emacs has to do it."
  (let ((base editd--base) (tick (buffer-chars-modified-tick)) (on-stale nil))
    (catch 'saved
      (while t
        (condition-case refusal
            (progn (editd--saved (editd--apply bytes base on-stale) bytes coding tick)
                   (throw 'saved t))
          (editd-unreachable
           (throw 'saved (editd--save-without refusal)))
          (editd-refused
           (pcase (editd--refusal-name refusal)
             ((or "stale" "file_exists")
              (let ((current (editd--version-now)))
                (cond ((equal current (editd--version bytes)) ; the file has these bytes already
                       (editd--settle current)
                       (throw 'saved t))
                      (on-stale (editd--mark-conflicts coding)))
                (pcase (editd--choose refusal current)
                  ('reload (editd--reload) (throw 'saved t))
                  ('merge (setq on-stale "merge"))
                  ('overwrite (setq base current)))))
             ("conflict" (editd--mark-conflicts coding))
             ((or "path_outside" "path_protected")
              (throw 'saved (editd--save-by-emacs (cadr refusal))))
             (_ (throw 'saved (editd--save-refused refusal))))))))))

(defun editd--apply (bytes base on-stale &optional dry)
  "Request a write of BYTES over BASE.
ON-STALE and DRY are those of the protocol."
  (editd--request 'apply (editd--write bytes base on-stale dry)))

(defun editd--write (bytes base on-stale dry)
  "Return the parameters of a write of BYTES over BASE.
ON-STALE and DRY are those of the protocol."
  `( :edits [(:op "write" :path ,(editd--path-value) :content ,(editd--value bytes) :base ,base)]
     :on_unsaved "ignore"               ; the user decides about a save
     ,@(when on-stale (list :on_stale on-stale :return_content t))
     ,@(if dry '(:dry_run t) (list :request_id (editd--request-id)))))

(defun editd--saved (answer bytes coding tick)
  "Handle the daemon's ANSWER to a save of BYTES, encoded by CODING at TICK."
  (let* ((file (aref (plist-get answer :files) 0))
         (version (plist-get file :version))
         (content (plist-get file :content))
         (merged (and content (not (equal (editd--bytes content) bytes)) (editd--bytes content))))
    (cond ((/= tick (buffer-chars-modified-tick)) ; a timer has changed the buffer in the meantime
           (unless merged
             (setq editd--base version)
             (set-visited-file-modtime)))
          (t
           (when merged
             (editd--replace (decode-coding-string merged coding))
             (message "Merged with the changes of others in %s" editd--path))
           (editd--settle version)))
    (mapc (lambda (warning) (message "editd: %s" warning)) (plist-get file :warnings))))

(defun editd--backup ()
  "Make Emacs's backup of this buffer's file, if needed."
  (let ((backup-by-copying t))
    (unless buffer-backed-up
      (backup-buffer))))

(defun editd--choose (refusal version)
  "Ask what to do about REFUSAL, of a save over VERSION.
The answer is `reload', `merge' or `overwrite'; to cancel is an error."
  (let ((choice nil))
    (while (null choice)
      (pcase (car (read-multiple-choice
                   (editd--who-changed refusal)
                   (append (and version '((?r "reload" "Drop this buffer's changes and take the file's text")
                                          (?m "merge" "Merge this buffer's changes with the file's")))
                           '((?o "overwrite" "Save this buffer's text; the file's text stays in the history")
                             (?d "diff" "Show the changes of the file")
                             (?c "cancel" "Do not save")))))
        (?r (setq choice 'reload))
        (?m (setq choice 'merge))
        (?o (setq choice 'overwrite))
        (?d (editd--show-diff (or (plist-get (editd--refusal-data refusal) :diff) "")))
        (_ (user-error "Not saved: others have changed %s" editd--path))))
    choice))

(defun editd--who-changed (refusal)
  "Return a sentence with the authors of the file's changes in REFUSAL."
  (let ((names (seq-uniq (mapcar #'editd--by (plist-get (editd--refusal-data refusal) :changed_by)))))
    (format "%s was changed%s since you read it." editd--path
            (if names (concat " by " (string-join names ", ")) ""))))

(defun editd--save-without (failure)
  "Follow `editd-without-daemon'; FAILURE is the reason for the missing daemon."
  (pcase editd-without-daemon
    ('refuse (user-error "Not saved: %s" (cadr failure)))
    ('ask (unless (y-or-n-p (format "%s  Let Emacs save %s without editd? " (cadr failure) editd--path))
            (user-error "Not saved: %s" (cadr failure)))))
  (editd--save-by-emacs (cadr failure)))

(defun editd--save-refused (refusal)
  "Ask whether Emacs shall save after REFUSAL by the daemon."
  (unless (y-or-n-p (format "%s  Let Emacs save it without editd? " (cadr refusal)))
    (user-error "Not saved: %s" (cadr refusal)))
  (editd--save-by-emacs (cadr refusal)))

(defun editd--save-by-emacs (why)
  "Return nil, so that Emacs saves without editd, and show WHY.
If the file has changed, ask first."
  (let ((current (editd--version-now)))
    (unless (or (null current)
                (equal current editd--base)
                (yes-or-no-p (format "%s has changed since it was read, and editd cannot help.  Save anyway? "
                                     editd--path)))
      (user-error "Not saved: %s" why)))
  (message "Emacs saves %s without editd: %s" editd--path why)
  nil)

(defun editd--after-save ()
  "Handle a save by Emacs, or a change of the file right after a save."
  (if (verify-visited-file-modtime (current-buffer))
      (editd--note-base)
    (editd--look)))


;;; Unsaved text

(defconst editd--pause 0.3 "Seconds from a change to the hold of the text.")
(defconst editd--pause-max 5 "The longest of these pauses, after a slow hold.")
(defconst editd--shared-bytes-max (* 1024 1024) "The size of the largest text that is shared.")
(defvar editd--hold-seconds 0 "The time that the last hold has taken.")

(defun editd--hold-later (&rest _)
  "Hold this buffer's text after a pause, which is longer for a slow hold."
  (unless editd--hold-timer
    (setq editd--hold-timer
          (run-at-time (min (max editd--pause (* 20 editd--hold-seconds)) editd--pause-max) nil
                       #'editd--hold-in (current-buffer)))))

(defun editd--hold-in (buffer)
  "Let the daemon hold the unsaved text of BUFFER, after its pause."
  (when (buffer-live-p buffer)
    (with-current-buffer buffer
      (setq editd--hold-timer nil)
      (if (editd--nested-p)
          (editd--hold-later)
        (editd--hold)))))

(defun editd--hold ()
  "Let the daemon hold this buffer's unsaved text, or end its hold."
  (let* ((workspace (and editd-mode (editd--workspace editd--root)))
         (connection (and workspace (editd--live-p workspace)
                          (editd--workspace-connection workspace)))
         (wanted (list editd--path editd--base (buffer-chars-modified-tick))))
    (cond ((not (and connection (buffer-modified-p) editd-share-unsaved))
           (editd--release))
          ((not (and (eq (car editd--held) connection) (equal (cdr editd--held) wanted)))
           (let ((began (float-time))
                 (gc-cons-threshold (max gc-cons-threshold (* 32 editd--shared-bytes-max))))
             (setq editd--held (cons connection wanted))
             (editd--send-hold connection (editd--shared-text))
             (setq editd--hold-seconds (- (float-time) began)))))))

(defun editd--send-hold (connection bytes)
  "Hold BYTES, or with nil the fact of changes, on CONNECTION."
  (let ((place (list :path (editd--path-value) :base editd--base)))
    (ignore-errors                      ; the connection may have just ended
      (jsonrpc-async-request
       connection 'document.hold (append place (and bytes (list :content (editd--value bytes))))
       :success-fn #'ignore :timeout-fn #'ignore
       :error-fn (lambda (refusal)
                   (when (and bytes (equal (plist-get (plist-get refusal :data) :name) "too_large"))
                     (ignore-errors (jsonrpc-notify connection 'document.hold place))))))))

(defun editd--shared-text ()
  "Return the bytes of this buffer's unsaved text if they may be shared, or nil."
  (let ((name (file-name-nondirectory editd--path)))
    (and (eq editd-share-unsaved 'text)
         (<= (save-restriction (widen) (position-bytes (point-max))) editd--shared-bytes-max)
         (not (seq-some (lambda (glob) (string-match-p (wildcard-to-regexp glob) name)) editd-private))
         (editd--encoded-quietly))))

(defun editd--release ()
  "End the daemon's hold of this buffer's text."
  (when-let ((connection (car editd--held)))
    (when (jsonrpc-running-p connection)
      (ignore-errors
        (jsonrpc-notify connection 'document.release
                        (list :path (editd--path-value (nth 1 editd--held)))))))
  (setq editd--held nil))


;;; The content of the file and of the buffer

(defun editd--note-base ()
  "Note the version that this buffer was read at.
It is the file's version, if Emacs knows of no change since."
  (let ((now (editd--file-now)))
    (cond ((null now)
           (when (equal editd--base editd--unknown) (setq editd--base nil)))
          ((verify-visited-file-modtime (current-buffer))
           (setq editd--base (editd--version (car now)) editd--theirs nil))
          ((editd--holds-p (car now))
           (editd--settle (editd--version (car now)))))))

(defun editd--settle (version)
  "Note that this buffer is at VERSION, and its file, too, if it still is."
  (let ((now (editd--file-now)))
    (setq editd--base version editd--theirs nil)
    (set-visited-file-modtime (if (and now (equal (editd--version (car now)) version))
                                  (cdr now)
                                -1)) ; as for no file: Emacs sees a change, too
    (setq buffer-file-number (nthcdr 10 (file-attributes buffer-file-name)))
    (set-buffer-modified-p nil)
    (editd--hold)
    (force-mode-line-update)))

(defun editd--look (&optional transaction)
  "Follow a change of this buffer's file, by TRANSACTION if known."
  (let* ((now (editd--file-now))
         (version (and now (editd--version (car now)))))
    (cond ((and transaction (not (equal version (editd--left-at transaction))))
           nil)                         ; the event of a later transaction is to come
          ((equal version editd--base)
           (setq editd--theirs nil)
           (when now (set-visited-file-modtime (cdr now))))
          ((and now (editd--holds-p (car now)))
           (editd--settle version))
          ((and now (not (buffer-modified-p)))
           (editd--reload)
           (message "%s was changed%s; reloaded" editd--path (editd--by-whom transaction)))
          ((and now (eq editd-merge-changes 'auto))
           (editd--rebase version transaction))
          (t (editd--mark-changed version transaction)))
    (force-mode-line-update)))

(defun editd--rebase (version transaction)
  "Take the file's VERSION, made by TRANSACTION if known, into this changed buffer.
One undo takes it out again.  If both do not merge, mark the buffer.
Does not wait for the daemon, so that typing goes on."
  (let* ((buffer (current-buffer))
         (base editd--base)
         (tick (buffer-chars-modified-tick))
         (workspace (editd--workspace editd--root))
         (bytes (and base (editd--live-p workspace) (editd--encoded-quietly)))
         (mark (lambda (&rest _)
                 (when (buffer-live-p buffer)
                   (with-current-buffer buffer
                     (when (equal base editd--base)
                       (editd--mark-changed version transaction)))))))
    (if (null bytes)
        (funcall mark)
      (editd--hold)                     ; the merge of a held text joins changes of adjacent lines
      (jsonrpc-async-request
       (editd--workspace-connection workspace) 'apply (editd--write bytes base "merge" t)
       :timeout editd-timeout :timeout-fn mark :error-fn mark
       :success-fn
       (lambda (answer)
         (when (buffer-live-p buffer)
           (with-current-buffer buffer
             (cond ((not editd-mode) nil)
                   ((not (and (equal base editd--base) (buffer-modified-p)))
                    (editd--look))      ; it was saved, reloaded or merged in the meantime
                   ((/= tick (buffer-chars-modified-tick))
                    (editd--rebase version transaction))
                   (t
                    (undo-boundary)
                    (editd--merged answer buffer-file-coding-system (editd--by-whom transaction))
                    (undo-boundary))))))))))

(defun editd--mark-changed (version transaction)
  "Mark this buffer: its file has VERSION now, or is gone, by TRANSACTION if known."
  (unless (equal (or version 'gone) editd--theirs)
    (setq editd--theirs (or version 'gone))
    (message "%s was %s%s%s" editd--path (if version "changed" "removed") (editd--by-whom transaction)
             (cond (version "; merge it with M-x editd-merge")
                   ((editd--moved-to transaction)
                    (format ": it is %s now" (editd--moved-to transaction)))
                   (t ""))))
  (force-mode-line-update))

(defun editd--left-at (transaction)
  "Return the version of this buffer's file after TRANSACTION, or nil."
  (cl-loop for change across (plist-get transaction :files)
           when (equal (plist-get change :path) (editd--path-value))
           return (plist-get change :version)))

(defun editd--moved-to (transaction)
  "Return the new path if TRANSACTION moved this buffer's file, or nil."
  (cl-loop for change across (plist-get transaction :files)
           when (equal (plist-get change :from) (editd--path-value))
           return (editd--file-name (plist-get change :path))))

(defun editd--reload ()
  "Put the file's text into this buffer; point, markers and undo stay."
  (let* ((now (editd--file-now))
         (reading (and now (editd--plain-p) (editd--reading (car now)))))
    (if (null reading)
        (revert-buffer t t t)
      (run-hooks 'before-revert-hook)
      (setq buffer-file-coding-system (cdr reading))
      (editd--replace (car reading))
      (editd--settle (editd--version (car now)))
      (run-hooks 'after-revert-hook))))

(defun editd--reading (bytes)
  "Return Emacs's text for BYTES of this buffer's file, and the coding system.
Return nil if that text, encoded, would not be BYTES again."
  (let ((file buffer-file-name)
        (coding-system-for-read (or coding-system-for-read (car buffer-file-coding-system-explicit))))
    (if (not enable-multibyte-characters)
        (cons bytes buffer-file-coding-system)
      (with-temp-buffer
        (insert-file-contents file)
        (when (equal bytes (encode-coding-region (point-min) (point-max) last-coding-system-used t))
          (cons (buffer-string) last-coding-system-used))))))

(defun editd--replace (text)
  "Put TEXT into this buffer; point, markers and undo stay."
  (let ((buffer (current-buffer))
        (multibyte enable-multibyte-characters))
    (with-temp-buffer
      (set-buffer-multibyte multibyte)
      (insert text)
      (let ((source (current-buffer)))
        (with-current-buffer buffer
          (save-restriction
            (widen)
            (let ((inhibit-read-only t)
                  (buffer-file-name nil)) ; avoids the question about a changed file
              (replace-buffer-contents source 1.0))))))))

(defun editd--encoded ()
  "Return the bytes that Emacs would save and their coding system, as a pair."
  (save-restriction
    (widen)
    (let* ((wanted (or coding-system-for-write save-buffer-coding-system buffer-file-coding-system 'no-conversion))
           (coding (if (or coding-system-for-write save-buffer-coding-system
                           (not enable-multibyte-characters))
                       wanted
                     (select-safe-coding-system (point-min) (point-max) wanted nil buffer-file-name))))
      (cons (encode-coding-region (point-min) (point-max) coding t) coding))))

(defun editd--encoded-quietly ()
  "Return the bytes that Emacs would save, or nil if it would ask for a coding."
  (save-restriction
    (widen)
    (let ((coding (or save-buffer-coding-system buffer-file-coding-system 'no-conversion)))
      (when (eq (coding-system-type coding) 'undecided)
        (setq coding (coding-system-change-text-conversion coding 'utf-8)))
      (unless (and enable-multibyte-characters
                   (unencodable-char-position (point-min) (point-max) coding))
        (encode-coding-region (point-min) (point-max) coding t)))))

(defun editd--holds-p (bytes)
  "Return whether this buffer's text is BYTES when encoded."
  (save-restriction
    (widen)
    (equal bytes (encode-coding-region (point-min) (point-max) buffer-file-coding-system t))))

(defun editd--file-now ()
  "Return the bytes of this buffer's file and their time, as a pair, or nil."
  (let ((file buffer-file-name) before bytes after (tries 0))
    (while (progn
             (setq before (file-attributes file)
                   bytes (condition-case nil (editd--literally file) (file-error nil))
                   after (file-attributes file)
                   tries (1+ tries))
             (and (< tries 5) (not (equal (editd--stamp before) (editd--stamp after))))))
    (and bytes after (cons bytes (file-attribute-modification-time after)))))

(defun editd--stamp (attributes)
  "Return the part of a file's ATTRIBUTES that changes with each write."
  (list (file-attribute-modification-time attributes) (file-attribute-size attributes)
        (file-attribute-inode-number attributes)))

(defun editd--literally (file)
  "Return the bytes of FILE."
  (with-temp-buffer
    (set-buffer-multibyte nil)
    (insert-file-contents-literally file)
    (buffer-string)))

(defun editd--version-now ()
  "Return the version of this buffer's file, or nil if there is none."
  (when-let ((now (editd--file-now)))
    (editd--version (car now))))

(defun editd--version (bytes)
  "Return the version of a file with BYTES: git's blob id."
  (secure-hash 'sha1 (concat (format "blob %d\0" (length bytes)) bytes)))

(defun editd--value (bytes)
  "Return BYTES for JSON: a text, or base64 if they are not UTF-8."
  (let ((text (decode-coding-string bytes 'utf-8-unix)))
    (if (string-match-p "[^\x00-\xd7ff\xe000-\x10ffff]" text)
        (list :base64 (base64-encode-string bytes t))
      text)))

(defun editd--bytes (value)
  "Return the bytes of VALUE, a text or base64 in JSON."
  (if (stringp value)
      (encode-coding-string value 'utf-8-unix)
    (base64-decode-string (plist-get value :base64))))

(defun editd--file-name (value)
  "Return the file name of VALUE, a path in JSON."
  (decode-coding-string (editd--bytes value) (or file-name-coding-system default-file-name-coding-system 'utf-8)))

(defun editd--path-value (&optional path)
  "Return PATH, or this buffer's, for JSON."
  (editd--value (encode-coding-string (or path editd--path)
                                      (or file-name-coding-system default-file-name-coding-system 'utf-8))))


;;; Merging

(defun editd-merge ()
  "Merge the file's changes into this buffer, without saving it.
If both changed the same lines, mark the conflicts for `smerge-mode'."
  (interactive)
  (editd--check-here)
  (let ((bytes-and-coding (editd--encoded)))
    (condition-case refusal
        (cond ((equal (editd--version-now) editd--base)
               (setq editd--theirs nil)
               (message "Nobody else has changed %s" editd--path))
              ((not (buffer-modified-p)) (editd--look))
              (t (editd--merged (editd--apply (car bytes-and-coding) editd--base "merge" t)
                                (cdr bytes-and-coding))))
      (editd-refused
       (if (member (editd--refusal-name refusal) '("conflict" "stale" "file_exists"))
           (editd--mark-conflicts (cdr bytes-and-coding))
         (signal (car refusal) (cdr refusal)))))))

(defun editd--merged (answer coding &optional by)
  "Put the merge in ANSWER into this buffer; CODING is the buffer's.
BY says who has changed the file, as in \" by claude\"."
  (let ((file (aref (plist-get answer :files) 0)))
    (editd--replace (decode-coding-string (editd--bytes (plist-get file :content)) coding))
    (editd--now-based-on (plist-get file :base))
    (message "Merged the changes%s in %s; it is not saved yet" (or by " of others") editd--path)))

(defun editd--now-based-on (version)
  "Make VERSION the base of this buffer's changes."
  (setq editd--base version editd--theirs nil)
  (set-visited-file-modtime)
  (editd--hold)
  (force-mode-line-update))

(defun editd--mark-conflicts (coding)
  "Merge the changes of both sides by markers, in CODING.  Does not return.
The user then saves the buffer, over the version that was merged."
  (let* ((now (or (editd--file-now)
                  (user-error "Not merged: %s was removed.  Save again to create it" editd--path)))
         (theirs (decode-coding-string (car now) coding))
         (base (decode-coding-string (or (editd--base-bytes) "") coding))
         (mine (save-restriction (widen) (buffer-substring-no-properties (point-min) (point-max))))
         (merged (editd--diff3 mine base theirs)))
    (editd--replace (cdr merged))
    (editd--now-based-on (editd--version (car now)))
    (set-buffer-modified-p t)
    (if (car merged)
        (message "Merged the changes of others in %s; it is not saved yet" editd--path)
      (smerge-start-session)
      (user-error "Both changed the same lines of %s: resolve the conflicts, then save" editd--path))))

(defun editd--diff3 (mine base theirs)
  "Merge the texts MINE and THEIRS, made from BASE.
Return whether that is clean, and the text, as a pair."
  (let ((folder (make-temp-file "editd" t))
        (coding-system-for-read 'utf-8-emacs-unix)
        (coding-system-for-write 'utf-8-emacs-unix)
        status)
    (unwind-protect
        (with-temp-buffer
          (cl-loop for (name . text) in `(("mine" . ,mine) ("base" . ,base) ("theirs" . ,theirs))
                   do (write-region text nil (expand-file-name name folder) nil 'quiet))
          (let ((default-directory folder))
            (setq status (call-process editd-diff3-program nil '(t nil) nil "-m" "mine" "base" "theirs")))
          (unless (memq status '(0 1))
            (user-error "Not merged: %s failed" editd-diff3-program))
          (cons (eql status 0) (buffer-string)))
      (delete-directory folder t))))

(defun editd--base-bytes ()
  "Return the bytes of the version that was read, or nil if unknown."
  (when-let* ((base editd--base)
              (seq (editd--seq-with base)))
    (condition-case nil
        (let ((answer (editd--request 'read (list :path (editd--path-value) :at (number-to-string seq)))))
          (and (equal (plist-get answer :version) base)
               (editd--bytes (plist-get answer :content))))
      (editd-refused nil))))

(defun editd--seq-with (version)
  "Return a transaction after which this buffer's file was at VERSION, or nil."
  (let ((answer (editd--request 'log (list :path (editd--path-value) :limit 1000))))
    (cl-loop for transaction across (plist-get answer :transactions)
             for seq = (plist-get transaction :seq)
             thereis (cl-loop for change across (plist-get transaction :files)
                              when (equal (plist-get change :path) (editd--path-value))
                              thereis (cond ((equal (plist-get change :version) version) seq)
                                            ((equal (plist-get change :base) version) (1- seq)))))))


;;; Undo, redo, rollback

(defun editd-undo (&optional tx here)
  "Take back transaction TX, a number or an id, or the newest edit.
HERE, the prefix argument, limits it to this file.  Later changes stay."
  (interactive (list (editd--read-tx "Undo transaction (empty: the newest edit): ") current-prefix-arg))
  (editd--take-back 'undo (append (and tx (list :tx tx))
                                  (and here (list :paths (vector (editd--path-value)))))))

(defun editd-redo ()
  "Take back the newest undo."
  (interactive)
  (editd--take-back 'redo nil))

(defun editd-rollback (session)
  "Take back all the work of SESSION; the work of others stays."
  (interactive (list (completing-read "Roll back session: " (editd--sessions))))
  (editd--take-back 'rollback (list :session session)))

(defun editd--take-back (method params)
  "Call METHOD with PARAMS.
If later changes overlap, ask whether to force it."
  (condition-case refusal
      (editd--took-back (editd--request method (append params (list :request_id (editd--request-id)))))
    (editd-refused
     (unless (and (equal (editd--refusal-name refusal) "conflict")
                  (yes-or-no-p (format "%s  Put back the earlier text anyway? "
                                       (editd--fact refusal))))
       (signal (car refusal) (cdr refusal)))
     (editd--took-back
      (editd--request method (append params (list :request_id (editd--request-id) :on_conflict "force")))))))

(defun editd--fact (refusal)
  "Return the message of REFUSAL without its hint, which is for programs."
  (string-trim-right
   (string-remove-suffix (or (plist-get (editd--refusal-data refusal) :hint) "") (cadr refusal))))

(defun editd--took-back (answer)
  "Show the result ANSWER of an undo, and follow it in the buffers."
  (let ((transaction (plist-get answer :transaction))
        (proposal (plist-get answer :proposal)))
    (cond (transaction
           (message "[%s] %s: %s" (plist-get transaction :seq) (editd--summary transaction)
                    (string-join (editd--files-of transaction) ", ")))
          ((consp proposal)
           (message "It waits for a reviewer as proposal %s" (plist-get proposal :proposal)))
          (t
           (message "Nothing to change")))
    (editd--look-everywhere (editd--workspace (editd--here)))
    (editd--refresh-logs)
    transaction))

(defun editd--sessions ()
  "Return the sessions in the history and in the daemon."
  (let ((open (plist-get (editd--request 'session.list nil) :sessions))
        (past (plist-get (editd--request 'log '(:limit 1000)) :transactions)))
    (seq-uniq (delq nil (mapcar (lambda (each) (plist-get each :session)) (vconcat open past))))))

(defun editd--read-tx (prompt)
  "Read a transaction after PROMPT, or nil; the one at point is the default."
  (let ((given (string-trim (read-string prompt nil nil (editd--tx-at-point)))))
    (and (not (string-empty-p given)) given)))

(defun editd--tx-at-point ()
  "Return the transaction at point, in a log or in a blame, or nil."
  (when-let ((seq (or (get-text-property (point) 'editd-seq)
                      (and (derived-mode-p 'editd-log-mode) (tabulated-list-get-id)))))
    (format "%s" seq)))


;;; Log, show, diff

(defvar-local editd--log-path nil "The path of this log, or nil for all.")

(defvar editd-log-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "RET") #'editd-show)
    (define-key map "u" #'editd-undo-at-point)
    (define-key map "R" #'editd-rollback-at-point)
    (define-key map "+" #'editd-log-more)
    map)
  "Keymap of a log.")

(defvar-local editd--log-limit 100 "The number of transactions in this log.")

(define-derived-mode editd-log-mode tabulated-list-mode "editd-log"
  "Major mode for the transactions of a workspace, newest first.
\\{editd-log-mode-map}"
  (setq tabulated-list-format [("Seq" 6 editd--older-p :right-align t) ("Time" 16 t) ("Kind" 9 t)
                               ("By" 18 t) ("What" 0 nil)]
        tabulated-list-entries #'editd--log-entries)
  (tabulated-list-init-header))

(defun editd-log (&optional everything)
  "Show the transactions of this buffer's file.
EVERYTHING, the prefix argument, shows those of the workspace, as in a
buffer without a file."
  (interactive "P")
  (let ((root (editd--here))
        (path (and (not everything) editd-mode editd--path)))
    (pop-to-buffer
     (with-current-buffer (get-buffer-create (format "*editd-log: %s*" (or path (abbreviate-file-name root))))
       (editd-log-mode)
       (setq editd--root root editd--log-path path default-directory root)
       (revert-buffer)
       (goto-char (point-min))
       (current-buffer)))))

(defun editd-log-more ()
  "Show ten times as many transactions."
  (interactive nil editd-log-mode)
  (setq editd--log-limit (min 10000 (* 10 editd--log-limit)))
  (revert-buffer))

(defun editd--log-entries ()
  "Return the lines of this log."
  (let ((answer (editd--request 'log `( :limit ,editd--log-limit
                                        ,@(and editd--log-path
                                               (list :path (editd--path-value editd--log-path)))))))
    (mapcar #'editd--log-entry (plist-get answer :transactions))))

(defun editd--log-entry (transaction)
  "Return the line of TRANSACTION in a log."
  (let ((undone (plist-get transaction :undone_by)))
    (list (plist-get transaction :seq)
          (vector (number-to-string (plist-get transaction :seq))
                  (editd--time (plist-get transaction :time))
                  (plist-get transaction :kind)
                  (editd--by transaction)
                  (concat (and undone (format "(undone by %s) " undone))
                          (editd--summary transaction))))))

(defun editd--older-p (one other)
  "Return whether log entry ONE is older than OTHER."
  (< (car one) (car other)))

(defun editd--refresh-logs ()
  "Update all visible logs."
  (dolist (window (window-list-1 nil nil 'visible))
    (with-current-buffer (window-buffer window)
      (when (derived-mode-p 'editd-log-mode)
        (revert-buffer)))))

(defun editd-undo-at-point ()
  "Take back the transaction at point."
  (interactive)
  (editd-undo (or (editd--tx-at-point) (user-error "No transaction here"))))

(defun editd-rollback-at-point ()
  "Take back all the work of the session of the transaction at point."
  (interactive)
  (let* ((tx (or (editd--tx-at-point) (user-error "No transaction here")))
         (shown (plist-get (editd--request 'show (list :tx tx :diff :json-false)) :transaction))
         (session (or (plist-get shown :session) (user-error "Transaction %s belongs to no session" tx))))
    (when (yes-or-no-p (format "Roll back all of session %s? " session))
      (editd-rollback session))))

(defun editd-show (tx)
  "Show transaction TX (default: the one at point) with its diff."
  (interactive (list (or (editd--tx-at-point) (editd--read-tx "Show transaction: ")
                         (user-error "No transaction named"))))
  (let* ((root (editd--here))
         (answer (editd--request 'show (list :tx tx)))
         (transaction (plist-get answer :transaction)))
    (editd--show-diff
     (format "%s %s by %s, %s\n\n    %s\n\n%s"
             (plist-get transaction :seq) (plist-get transaction :kind) (editd--by transaction)
             (editd--time (plist-get transaction :time))
             (replace-regexp-in-string "\n" "\n    " (plist-get transaction :message))
             (editd--text (plist-get answer :diff)))
     root)))

(defun editd-diff (&optional from to)
  "Show the changes of this buffer's file from transaction FROM to TO.
They are the workspace as first seen, and the files as they are now;
a prefix argument asks for others."
  (interactive (and current-prefix-arg
                    (list (editd--read-tx "From transaction (empty: as first seen): ")
                          (editd--read-tx "To transaction (empty: as it is now): "))))
  (let* ((root (editd--here))
         (answer (editd--request 'diff `( ,@(and from (list :from from)) ,@(and to (list :to to))
                                          ,@(and editd-mode (list :paths (vector (editd--path-value))))))))
    (editd--show-diff (editd--text (plist-get answer :diff)) root)))

(defun editd--show-diff (diff &optional root)
  "Show DIFF, of the workspace at ROOT, in a buffer of its own."
  (let ((root (or root editd--root)))
    (with-current-buffer (get-buffer-create "*editd-diff*")
      (let ((inhibit-read-only t))
        (erase-buffer)
        (insert diff)
        (goto-char (point-min)))
      (diff-mode)
      (setq editd--root root default-directory root buffer-read-only t)
      (display-buffer (current-buffer)))))

(defun editd--text (value)
  "Return VALUE, a text or bytes in JSON or nil, as a text for display."
  (if value (decode-coding-string (editd--bytes value) 'utf-8-unix) ""))


;;; Blame and status

(defvar editd-blame-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "RET") #'editd-show)
    (define-key map "u" #'editd-undo-at-point)
    (define-key map "R" #'editd-rollback-at-point)
    map)
  "Keymap of a blame.")

(define-derived-mode editd-blame-mode special-mode "editd-blame"
  "Major mode for the author and transaction of each line of a file.
\\{editd-blame-mode-map}")

(defun editd-blame ()
  "Show the author of each line of this buffer's file on disk."
  (interactive)
  (editd--check-here)
  (let* ((root editd--root)
         (line (line-number-at-pos nil t))
         (coding buffer-file-coding-system)
         (lines (plist-get (editd--request 'blame (list :path (editd--path-value))) :lines))
         (content (plist-get (editd--request 'read (list :path (editd--path-value))) :content))
         (text (split-string (decode-coding-string (editd--bytes content) coding) "\n")))
    (pop-to-buffer
     (with-current-buffer (get-buffer-create (format "*editd-blame: %s*" editd--path))
       (editd-blame-mode)
       (setq editd--root root default-directory root)
       (let ((inhibit-read-only t))
         (erase-buffer)
         (seq-do (lambda (each) (editd--insert-blame each (or (pop text) ""))) lines)
         (goto-char (point-min))
         (forward-line (1- line)))
       (current-buffer)))))

(defun editd--insert-blame (line text)
  "Insert TEXT with the facts of LINE, of a blame."
  (let ((start (point))
        (seq (plist-get line :seq)))
    (insert (propertize (format "%5s %-16s %-18s" seq
                                (if (eql seq 0) "" (editd--time (plist-get line :time)))
                                (if (eql seq 0) "" (truncate-string-to-width (editd--by line) 18)))
                        'face 'editd-margin)
            " " text "\n")
    (put-text-property start (point) 'editd-seq seq)))

(defun editd-status ()
  "Show the status of the daemon of this workspace."
  (interactive)
  (let ((status (editd--request 'status nil)))
    (message "editd %s at %s: %s%s, %s transactions, watcher %s%s"
             (plist-get status :version) (abbreviate-file-name (editd--here)) (plist-get status :state)
             (if-let ((reason (plist-get status :reason))) (format " (%s)" reason) "")
             (plist-get status :head)
             (plist-get (plist-get status :watcher) :state)
             (mapconcat (lambda (line) (concat "; " line)) (plist-get status :weaker) ""))
    status))

(defun editd--by (who)
  "Return the actor and the session of WHO, a transaction or a blamed line."
  (let ((actor (plist-get who :actor))
        (session (plist-get who :session)))
    (cond ((and actor session (not (equal actor session))) (format "%s in %s" actor session))
          (actor actor)
          (t (or (plist-get who :kind) "somebody else")))))

(defun editd--by-whom (transaction)
  "Return the words \" by somebody\" for TRANSACTION, which may be nil."
  (if transaction (concat " by " (editd--by transaction)) ""))

(defun editd--summary (transaction)
  "Return the message or the files of TRANSACTION, in a line."
  (let ((message (plist-get transaction :message)))
    (if (member message '(nil ""))
        (string-join (editd--files-of transaction) ", ")
      (car (split-string message "\n")))))

(defun editd--files-of (transaction)
  "Return the names of the files of TRANSACTION."
  (mapcar (lambda (change) (editd--file-name (plist-get change :path))) (plist-get transaction :files)))

(defun editd--time (text)
  "Return TEXT, a time of the protocol, as a local time to the minute."
  (format-time-string "%F %R" (date-to-time (replace-regexp-in-string "\\.[0-9]+" "" text))))


;;; Proposals

(defvar-local editd--proposal nil "The proposal of this buffer, as `proposal.get' returns it.")
(defvar-local editd--left-out nil "The ids of the hunks of this proposal that are not to land.")
(defvar-local editd--own-texts nil
  "The reviewer's buffers, as an alist from paths: what each file is to be.")

(defvar editd-proposals-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "RET") #'editd-show-proposal)
    map)
  "Keymap of a list of proposals.")

(define-derived-mode editd-proposals-mode tabulated-list-mode "editd-proposals"
  "Major mode for the proposals that wait for a decision.
\\{editd-proposals-mode-map}"
  (setq tabulated-list-format [("No" 5 editd--older-p :right-align t) ("By" 18 t) ("Lines" 11 nil)
                               ("Files" 30 nil) ("What" 0 nil)]
        tabulated-list-entries #'editd--proposal-entries)
  (tabulated-list-init-header))

;;;###autoload
(defun editd-proposals ()
  "List the proposals of this workspace that wait for your decision."
  (interactive)
  (let ((root (editd--here)))
    (pop-to-buffer
     (with-current-buffer (get-buffer-create (format "*editd-proposals: %s*" (abbreviate-file-name root)))
       (editd-proposals-mode)
       (setq editd--root root default-directory root)
       (revert-buffer)
       (goto-char (point-min))
       (current-buffer)))))

(defun editd--proposal-entries ()
  "Return the lines of a list of proposals, the newest first."
  (cl-loop for proposal across (plist-get (editd--request 'proposal.list '(:limit 1000)) :proposals)
           for lines = (plist-get proposal :lines)
           when (equal (plist-get proposal :state) "open")
           collect (list (plist-get proposal :proposal)
                         (vector (number-to-string (plist-get proposal :proposal))
                                 (editd--by proposal)
                                 (format "+%d -%d" (plist-get lines :added) (plist-get lines :deleted))
                                 (mapconcat #'editd--file-name (plist-get proposal :paths) " ")
                                 (car (split-string (plist-get proposal :message) "\n"))))))

(defvar editd-proposal-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map "a" #'editd-take-hunk)
    (define-key map "x" #'editd-leave-hunk)
    (define-key map " " #'editd-toggle-hunk)
    (define-key map "E" #'editd-edit-proposal)
    (define-key map (kbd "C-c C-c") #'editd-approve)
    (define-key map (kbd "C-c C-k") #'editd-reject)
    map)
  "Keymap of a proposal.")

(define-derived-mode editd-proposal-mode diff-mode "editd-proposal"
  "Major mode for a proposal, as a diff of the present files.
\\{editd-proposal-mode-map}"
  (setq buffer-read-only t))

(defun editd-show-proposal (number)
  "Show proposal NUMBER, by default the one at point of a list."
  (interactive (list (or (and (derived-mode-p 'editd-proposals-mode) (tabulated-list-get-id))
                         (read-number "Proposal: "))))
  (let ((root (editd--here)))
    (pop-to-buffer
     (with-current-buffer (get-buffer-create (format "*editd-proposal %d*" number))
       (editd-proposal-mode)
       (setq editd--root root default-directory root)
       (editd--fill-proposal (editd--request 'proposal.get (list :proposal number :content t)))
       (current-buffer)))))

(defun editd--fill-proposal (proposal)
  "Show PROPOSAL in this buffer."
  (mapc #'kill-buffer (seq-filter #'buffer-live-p (mapcar #'cdr editd--own-texts)))
  (setq editd--proposal proposal editd--left-out nil editd--own-texts nil)
  (let ((inhibit-read-only t))
    (erase-buffer)
    (insert (format "Proposal %d by %s, %s\n\n    %s\n\n" (plist-get proposal :proposal) (editd--by proposal)
                    (editd--time (plist-get proposal :created))
                    (replace-regexp-in-string "\n" "\n    " (plist-get proposal :message))))
    (seq-doseq (file (plist-get proposal :files))
      (let ((path (editd--file-name (plist-get file :path))))
        (insert (propertize (format "--- a/%s\n+++ b/%s\n" path path) 'editd-path path))
        (seq-doseq (hunk (plist-get file :hunks))
          (insert (propertize (editd--text (plist-get hunk :text))
                              'editd-hunk hunk 'editd-path path)))))
    (goto-char (point-min))
    (editd--mark-hunks))
  (let ((root editd--root))
    (dolist (buffer (buffer-list))
      (with-current-buffer buffer
        (when (and editd-mode (buffer-modified-p) (equal editd--root root)
                   (seq-contains-p (plist-get proposal :paths) (editd--path-value)))
          (message "%s has changes here that are not saved: save them first" editd--path))))))

(defun editd--mark-hunks ()
  "Show before each hunk of this proposal whether it is to land."
  (remove-overlays (point-min) (point-max) 'editd-mark t)
  (let ((at (point-min)))
    (while (setq at (editd--next-hunk at))
      (let ((hunk (get-text-property at 'editd-hunk))
            (overlay (make-overlay at at)))
        (overlay-put overlay 'editd-mark t)
        (overlay-put overlay 'before-string
                     (propertize (cond ((not (equal (plist-get hunk :state) "fits"))
                                        (format "(%s) " (plist-get hunk :state)))
                                       ((member (plist-get hunk :hunk) editd--left-out) "[ ] ")
                                       (t "[x] "))
                                 'face 'editd-margin)))
      (setq at (next-single-property-change at 'editd-hunk nil (point-max))))))

(defun editd--next-hunk (at)
  "Return the position of the first hunk at AT or later, or nil."
  (let ((found (if (get-text-property at 'editd-hunk) at
                 (next-single-property-change at 'editd-hunk))))
    (and found (< found (point-max)) found)))

(defun editd--hunk-at-point ()
  "Return the id of the hunk at point."
  (plist-get (or (get-text-property (point) 'editd-hunk) (user-error "No hunk here")) :hunk))

(defun editd--after-hunk ()
  "Show the marks, and go to the next hunk."
  (editd--mark-hunks)
  (let ((next (editd--next-hunk (next-single-property-change (point) 'editd-hunk nil (point-max)))))
    (when next (goto-char next))))

(defun editd-take-hunk ()
  "Let the hunk at point land, and go to the next one."
  (interactive nil editd-proposal-mode)
  (setq editd--left-out (delete (editd--hunk-at-point) editd--left-out))
  (editd--after-hunk))

(defun editd-leave-hunk ()
  "Leave out the hunk at point, and go to the next one."
  (interactive nil editd-proposal-mode)
  (cl-pushnew (editd--hunk-at-point) editd--left-out :test #'equal)
  (editd--after-hunk))

(defun editd-toggle-hunk ()
  "Take the hunk at point if it is left out, and leave it out otherwise."
  (interactive nil editd-proposal-mode)
  (if (member (editd--hunk-at-point) editd--left-out)
      (editd-take-hunk)
    (editd-leave-hunk)))

(defun editd-edit-proposal ()
  "Compare the file at point, as it is now, with what it is to be, by `ediff'.
The right side is yours to edit; \\[editd-approve] lands it as your text."
  (interactive nil editd-proposal-mode)
  (let ((path (or (get-text-property (point) 'editd-path) (user-error "No file here"))))
    (apply #'ediff-buffers (editd--proposal-sides path))))

(defun editd--proposal-sides (path)
  "Return the buffers for PATH in this proposal: as it is now, and as it is to be."
  (let* ((file (editd--proposed-file path))
         (number (plist-get editd--proposal :proposal))
         (right (alist-get path editd--own-texts nil nil #'equal)))
    (unless (buffer-live-p right)
      (setq right (editd--side (format "*editd %d to be: %s*" number path) path (plist-get file :new)))
      (setf (alist-get path editd--own-texts nil nil #'equal) right))
    (list (with-current-buffer (editd--side (format "*editd %d now: %s*" number path) path
                                            (plist-get file :old))
            (setq buffer-read-only t)
            (current-buffer))
          right)))

(defun editd--side (name path content)
  "Return a buffer called NAME with CONTENT of the file PATH."
  (with-current-buffer (get-buffer-create name)
    (let ((inhibit-read-only t)
          (buffer-file-name path))
      (erase-buffer)
      (insert (editd--text content))
      (delay-mode-hooks (set-auto-mode t)))
    (set-buffer-modified-p nil)
    (goto-char (point-min))
    (current-buffer)))

(defun editd--proposed-file (path)
  "Return the file PATH of this proposal."
  (seq-find (lambda (file) (equal (editd--file-name (plist-get file :path)) path))
            (plist-get editd--proposal :files)))

(defun editd--reviewers-files ()
  "Return the reviewer's own texts, for the protocol."
  (cl-loop for (path . buffer) in editd--own-texts
           for file = (editd--proposed-file path)
           when (and (buffer-live-p buffer) (buffer-modified-p buffer))
           collect (list :path (plist-get file :path) :base (plist-get file :now)
                         :content (with-current-buffer buffer
                                    (editd--value (encode-coding-string (buffer-string) 'utf-8-unix))))))

(defun editd--hunks-to-land ()
  "Return the ids of the hunks of this proposal that fit and are not left out."
  (cl-loop for file across (plist-get editd--proposal :files)
           append (cl-loop for hunk across (plist-get file :hunks)
                           for id = (plist-get hunk :hunk)
                           when (and (equal (plist-get hunk :state) "fits")
                                     (not (member id editd--left-out)))
                           collect id)))

(defun editd-approve (&optional comment)
  "Land this proposal, without the hunks that are left out.
A prefix argument asks for a COMMENT."
  (interactive (list (and current-prefix-arg (read-string "Comment: "))) editd-proposal-mode)
  (let ((files (editd--reviewers-files)))
    (editd--decided
     'proposal.approve
     `( ,@(if editd--left-out
              (list :hunks (vconcat (editd--hunks-to-land)))
            (list :view (plist-get editd--proposal :view)))
        ,@(and files (list :files (vconcat files)))
        ,@(and comment (list :comment comment)))
     "has landed")))

(defun editd-reject (comment)
  "Reject this proposal with COMMENT, which may be empty."
  (interactive (list (read-string "Reject, because: ")) editd-proposal-mode)
  (editd--decided 'proposal.reject (and (not (string-empty-p comment)) (list :comment comment)) "is rejected"))

(defun editd--decided (method params words)
  "Call METHOD with PARAMS for this proposal, and say that it WORDS.
If somebody has changed it since it was shown, show it as it is now."
  (let ((number (plist-get editd--proposal :proposal)))
    (condition-case refusal
        (let ((transaction (plist-get (editd--request method `( :proposal ,number ,@params
                                                               :request_id ,(editd--request-id)))
                                      :transaction)))
          (mapc #'kill-buffer (seq-filter #'buffer-live-p (mapcar #'cdr editd--own-texts)))
          (message "Proposal %d %s%s" number words
                   (if transaction (format " as %d" (plist-get transaction :seq)) ""))
          (quit-window t))
      (editd-refused
       (when (equal (editd--refusal-name refusal) "stale")
         (editd--fill-proposal (editd--request 'proposal.get (list :proposal number :content t))))
       (signal (car refusal) (cdr refusal))))))


;;; Events

(defvar editd--busy nil "Non-nil while a request waits for its answer: events wait, too.")

(defun editd--heard (workspace method params)
  "Queue notification METHOD with PARAMS of WORKSPACE."
  (when (eq method 'event)
    (push params (editd--workspace-events workspace))
    (editd--soon workspace)))

(defun editd--nested-p ()
  "Return whether a timer runs while some package waits for an answer.
That answer would end whatever the timer does, even in the middle."
  (let ((waits nil))
    (mapbacktrace (lambda (_evaluated function &rest _)
                    (when (eq function 'jsonrpc-request) (setq waits t))))
    waits))

(defun editd--soon (workspace &optional seconds)
  "Handle the events of WORKSPACE when Emacs is idle, after SECONDS if given."
  (when (and (editd--workspace-events workspace) (not (editd--workspace-timer workspace)))
    (setf (editd--workspace-timer workspace)
          (run-at-time (or seconds 0) nil #'editd--take-events workspace))))

(defun editd--take-events (workspace)
  "Follow the events of WORKSPACE."
  (setf (editd--workspace-timer workspace) nil)
  (cond
   (editd--busy)                        ; `editd--request' calls this function later
   ((editd--nested-p)
    (editd--soon workspace 0.02))
   (t
    (let ((events (nreverse (editd--workspace-events workspace)))
          (changed (make-hash-table :test #'equal)))
      (setf (editd--workspace-events workspace) nil)
      (dolist (event events)
        (when-let ((transaction (plist-get event :transaction)))
          (seq-doseq (change (plist-get transaction :files))
            (dolist (path (list (plist-get change :path) (plist-get change :from)))
              (when path (puthash (editd--file-name path) transaction changed))))))
      (if (seq-some (lambda (event) (equal (plist-get event :event) "resync")) events)
          (editd--look-everywhere workspace)
        (editd--look-everywhere workspace changed))))))

(defun editd--look-everywhere (workspace &optional changed)
  "Check the files of all buffers of WORKSPACE.
CHANGED, a table from paths to transactions, leaves out the others."
  (dolist (buffer (buffer-list))
    (with-current-buffer buffer
      (when (and editd-mode (equal editd--root (editd--workspace-root workspace)))
        (let ((transaction (and changed (gethash editd--path changed))))
          (when (or (null changed) transaction)
            (with-demoted-errors "editd: %S"
              (editd--look transaction)
              (editd--hold))))))))


;;; The daemon

(defvar editd--workspaces (make-hash-table :test #'equal) "The workspaces by their roots.")

(defun editd--workspace (root)
  "Return the workspace at ROOT."
  (or (gethash root editd--workspaces)
      (puthash root (editd--make-workspace root) editd--workspaces)))

(defun editd--here ()
  "Return the root of this buffer's workspace."
  (or editd--root
      (editd--root-of (expand-file-name default-directory))
      (user-error "This is not in a workspace of editd")))

(defun editd--check-here ()
  "Refuse a command that needs a file in a workspace."
  (unless (or editd-mode (editd-mode 1))
    (user-error "This buffer visits no file in a workspace of editd")))

(defun editd--live-p (workspace)
  "Return whether WORKSPACE is connected to its daemon."
  (and (editd--workspace-ready workspace)
       (jsonrpc-running-p (editd--workspace-connection workspace))))

(defun editd--request (method params)
  "Call METHOD with PARAMS in this buffer's workspace, and return the answer.
Ask for the PIN, or use the reviewers' socket, if the daemon wants that."
  (condition-case refusal
      (editd--with-pin #'editd--send method params)
    (editd-refused
     (let ((socket (and (editd--refusal-fact refusal :needs_review_socket)
                        (editd--review-socket (editd--workspace (editd--here))))))
       (if socket
           (editd--request-at socket method params)
         (signal (car refusal) (cdr refusal)))))))

(defun editd--with-pin (call method params)
  "Return the answer of CALL to METHOD with PARAMS.
If the daemon wants the PIN, ask for it, and call again."
  (condition-case refusal
      (funcall call method params)
    (editd-refused
     (unless (editd--refusal-fact refusal :needs_pin)
       (signal (car refusal) (cdr refusal)))
     (funcall call 'review.unlock
              (list :pin (read-passwd (format "%s PIN: " (editd--fact refusal)))))
     (funcall call method params))))

(defun editd--review-socket (workspace)
  "Return the reviewers' own socket beside that of WORKSPACE, or nil.
Another user's is not used."
  (let* ((socket (concat (string-remove-suffix ".sock" (editd--workspace-socket workspace))
                         ".review.sock"))
         (owner (file-attribute-user-id (file-attributes socket))))
    (and owner (= owner (user-uid)) socket)))

(defun editd--request-at (socket method params)
  "Call METHOD with PARAMS at the reviewers' SOCKET, and return the answer."
  (let* ((connection (editd--open-socket socket #'ignore #'ignore))
         (call (lambda (method params)
                 (condition-case failure
                     (jsonrpc-request connection method params :timeout editd-timeout)
                   (error
                    (editd--failed connection failure)
                    (signal 'editd-unreachable (list "The daemon has ended.")))))))
    (unwind-protect
        (progn
          (funcall call 'hello (editd--introduction))
          (editd--with-pin call method params))
      (ignore-errors (jsonrpc-shutdown connection)))))

(defun editd--introduction ()
  "Return what this Emacs says about itself, for the protocol."
  `(:client ,editd-actor ,@(and editd-session (list :session editd-session))))

(defun editd--send (method params)
  "Call METHOD with PARAMS in this buffer's workspace, and return the answer.
If the connection ends meanwhile, connect and send the request again:
each change has a `:request_id', so it takes effect once."
  (let ((workspace (editd--workspace (editd--here))))
    (unwind-protect
        (let ((editd--busy t))
          (catch 'answer
            (dotimes (_ 3)
              (let ((connection (editd--connected workspace)))
                (condition-case failure
                    (throw 'answer (jsonrpc-request connection method params :timeout editd-timeout))
                  (error (editd--failed connection failure)))))
            (signal 'editd-unreachable (list "The daemon exits again and again."))))
      (editd--soon workspace))))

(defun editd--failed (connection failure)
  "Signal the error for FAILURE of a request on CONNECTION.
Return if the connection has just ended."
  (let ((name (plist-get (alist-get 'jsonrpc-error-data (cddr failure)) :name))
        (message (alist-get 'jsonrpc-error-message (cddr failure))))
    (cond ((and (eq (car failure) 'jsonrpc-error) (equal name "shutting_down"))
           (jsonrpc-shutdown connection))
          ((and (eq (car failure) 'jsonrpc-error) name)
           (signal 'editd-refused (list message (alist-get 'jsonrpc-error-data (cddr failure)))))
          ((jsonrpc-running-p connection)
           (if (equal message "Timed out")
               (signal 'editd-unreachable
                       (list (format "The daemon did not answer within %s seconds." editd-timeout)))
             (signal (car failure) (cdr failure)))))))

(defun editd--refusal-name (refusal)
  "Return the protocol's name of the error REFUSAL."
  (plist-get (nth 2 refusal) :name))

(defun editd--refusal-data (refusal)
  "Return the data of the error REFUSAL."
  (plist-get (nth 2 refusal) :data))

(defun editd--refusal-fact (refusal fact)
  "Return whether FACT is true in the data of the error REFUSAL."
  (eq (plist-get (editd--refusal-data refusal) fact) t))

(defun editd--request-id ()
  "Return a name that no other request has."
  (secure-hash 'sha1 (format "%s %s %s %s" (emacs-pid) (current-time) (random) (user-uid))))

(defun editd--connected (workspace)
  "Return the connection to WORKSPACE's daemon, made now if needed."
  (let ((deadline (time-add nil editd-timeout)))
    (accept-process-output nil 0)       ; Emacs may not have noticed a lost connection yet
    (editd--connect workspace)
    (while (and (editd--workspace-opening workspace) (time-less-p nil deadline))
      (accept-process-output nil 0.02))
    (if (editd--live-p workspace)
        (editd--workspace-connection workspace)
      (signal 'editd-unreachable (list (editd--workspace-why workspace))))))

(defun editd--connect (workspace)
  "Begin to connect WORKSPACE to its daemon, if it is not connected."
  (unless (or (editd--live-p workspace) (editd--workspace-opening workspace))
    (setf (editd--workspace-opening workspace) t
          (editd--workspace-ready workspace) nil)
    (or (and (editd--workspace-socket workspace)
             (condition-case nil
                 (progn (editd--open workspace (editd--workspace-socket workspace)) t)
               (error (setf (editd--workspace-connection workspace) nil))))
        (editd--ask-editctl workspace))))

(defun editd--ask-editctl (workspace)
  "Get the socket of WORKSPACE from `editctl', which may start the daemon."
  (condition-case failure
      (let ((default-directory (editd--workspace-root workspace))
            (program (or (executable-find (car editd-program))
                         (error "Program %s was not found; see `editd-program'" (car editd-program))))
            (arguments (list "-C" (directory-file-name (editd--workspace-root workspace)))))
        (if (or editd-start-daemon
                (eql 0 (apply #'call-process program nil nil nil
                              (append (cdr editd-program) arguments '("status")))))
            (make-process :name "editctl" :noquery t :connection-type 'pipe
                          :buffer (generate-new-buffer " *editctl*")
                          :command `(,program ,@(cdr editd-program) ,@arguments "socket")
                          :sentinel (lambda (process _change) (editd--told workspace process)))
          (editd--give-up workspace "No daemon runs, and `editd-start-daemon' is nil.")))
    (error (editd--give-up workspace (error-message-string failure)))))

(defun editd--told (workspace process)
  "Open the socket of WORKSPACE that PROCESS, an `editctl socket', has printed."
  (unless (process-live-p process)
    (let* ((said (with-current-buffer (process-buffer process) (string-trim (buffer-string))))
           (socket (car (last (split-string said "\n")))))
      (kill-buffer (process-buffer process))
      (condition-case failure
          (if (eql (process-exit-status process) 0)
              (editd--open workspace socket)
            (editd--give-up workspace said))
        (error (editd--give-up workspace (error-message-string failure)))))))

(defun editd--give-up (workspace why)
  "Record WHY there is no connection to WORKSPACE's daemon."
  (setf (editd--workspace-opening workspace) nil
        (editd--workspace-why workspace) why)
  (force-mode-line-update t))

(defun editd--open (workspace socket)
  "Connect WORKSPACE to the daemon at SOCKET, and subscribe to changes."
  (let ((connection (editd--open-socket
                     socket
                     (lambda (_connection method params) (editd--heard workspace method params))
                     (lambda (connection) (editd--lost workspace connection)))))
    (setf (editd--workspace-connection workspace) connection)
    (let ((failed (lambda (&rest _)
                    (when (jsonrpc-running-p connection) ; otherwise its loss is handled elsewhere
                      (editd--give-up workspace "The daemon does not answer.")
                      (ignore-errors (jsonrpc-shutdown connection))))))
      (jsonrpc-async-request
       connection 'hello (editd--introduction)
       :timeout editd-timeout :timeout-fn failed :error-fn failed
       :success-fn
       (lambda (_)
         (jsonrpc-async-request
          connection 'subscribe '(:events ["transaction"])
          :timeout editd-timeout :timeout-fn failed :error-fn failed
          :success-fn (lambda (_) (editd--opened workspace socket))))))))

(defun editd--open-socket (socket heard lost)
  "Return a connection to SOCKET.
Call HEARD with each notification, and LOST at the end of the connection."
  (let ((connection (make-instance
                     'jsonrpc-process-connection
                     :name "editd"
                     :process (lambda ()
                                (make-network-process :name "editd" :family 'local :service socket
                                                      :noquery t :coding 'utf-8-emacs-unix))
                     :notification-dispatcher heard
                     :on-shutdown lost)))
    ;; Messages hold whole files: do not log them.  The slot's name depends on the version.
    (cl-loop for (slot . value) in '((-events-buffer-scrollback-size . 0)
                                     (-events-buffer-config . (:size 0)))
             when (slot-exists-p connection slot)
             do (eieio-oset connection slot value))
    connection))

(defun editd--opened (workspace socket)
  "Record that WORKSPACE is connected at SOCKET, and check for earlier changes."
  (setf (editd--workspace-opening workspace) nil
        (editd--workspace-ready workspace) t
        (editd--workspace-socket workspace) socket)
  (push '(:event "resync") (editd--workspace-events workspace))
  (editd--soon workspace)
  (force-mode-line-update t))

(defun editd--lost (workspace connection)
  "Record that CONNECTION to WORKSPACE has ended, and retry after a while.
If it ended before its daemon answered, and was made to an old socket,
that daemon was exiting: request a new one now."
  (when (eq connection (editd--workspace-connection workspace))
    (setf (editd--workspace-ready workspace) nil)
    (cond ((and (editd--workspace-opening workspace) (editd--workspace-socket workspace))
           (setf (editd--workspace-socket workspace) nil)
           (editd--ask-editctl workspace))
          (t
           (editd--give-up workspace "The daemon has ended.")
           (run-at-time 2 nil #'editd--connect-again workspace)))))

(defun editd--connect-again (workspace)
  "Connect WORKSPACE to its daemon again, if a buffer follows a file in it."
  (when (seq-some (lambda (buffer)
                    (and (buffer-local-value 'editd-mode buffer)
                         (equal (buffer-local-value 'editd--root buffer) (editd--workspace-root workspace))))
                  (buffer-list))
    (editd--connect workspace)))

(provide 'editd)

;; Local Variables:
;; checkdoc-verb-check-experimental-flag: nil
;; End:

;;; editd.el ends here
